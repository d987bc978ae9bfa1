"""SCoRe (Kumar et al., arXiv 2409.12917): two turns of one policy, γ = 0 (METHODS 3.5).

    stage I    turn 1: -β_2·KL(y1)          turn 2: r2 - β_1·KL(y2)
    stage II   turn 1: r1 - β_1·KL(y1)      turn 2: r2 + α·(r2 - r1) - β_1·KL(y2)

KL is the sequence's k1 estimate against the reference. Each turn's tokens are credited with that turn's reward only;
the baseline is leave-one-out over the G episodes of a problem, turn by turn. With `kl: loss` the KL leaves the reward
and becomes k3 a token in the loss with the same coefficient; stage I's turn 1 then learns from the KL alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reasoner.errors import UsageError
from reasoner.methods.multiturn.advantages import Credit, leave_one_out, minus
from reasoner.methods.multiturn.episode import Episode, groups

Stage = Literal[1, 2]


@dataclass(frozen=True, slots=True)
class Coefficients:
    """α, β_1 and β_2 of the formula above; `in_loss` moves the KL from the reward into the loss."""

    alpha: float
    beta1: float
    beta2: float
    in_loss: bool = False

    def betas(self, stage: Stage) -> tuple[float, float]:
        """KL coefficients of turn 1 and turn 2."""
        return (self.beta2 if stage == 1 else self.beta1), self.beta1


def stage_at(step: int, stage1_steps: int) -> Stage:
    """The stage of iteration `step`, counted from 0."""
    return 1 if step < stage1_steps else 2


def task_rewards(stage: Stage, r1: float, r2: float, alpha: float) -> tuple[float, float]:
    """(turn 1, turn 2) without KL. α shapes turn 2 only; stage I has no task reward for turn 1."""
    if stage == 1:
        return 0.0, r2
    return r1, r2 + alpha * (r2 - r1)


def credits(
    episodes: Sequence[Episode],
    kl1: Sequence[float],
    kl2: Sequence[float],
    stage: Stage,
    coefficients: Coefficients,
) -> list[Credit]:
    """Credits of both turns of every episode; `kl1[i]` and `kl2[i]` are sequence KLs of its turns.

    Raises UsageError for an episode without a refinement or a verdict: those must be left out before.
    """
    rows = list(episodes)
    members, betas = groups(rows), coefficients.betas(stage)
    rewards: tuple[list[float], list[float]] = ([], [])
    for i, episode in enumerate(rows):
        r1, r2 = scored_rewards(episode)
        task = task_rewards(stage, r1, r2, coefficients.alpha)
        for turn, kl in enumerate((kl1[i], kl2[i])):
            penalty = 0.0 if coefficients.in_loss else betas[turn] * kl
            rewards[turn].append(task[turn] - penalty)
    found = []
    for turn in (0, 1):
        advantages = minus(rewards[turn], leave_one_out(rewards[turn], members))
        for i, episode in enumerate(rows):
            written = episode.attempt if turn == 0 else episode.refinement
            assert written is not None
            found.append(Credit(written, advantages[i], betas[turn] if coefficients.in_loss else 0.0, i))
    return found


def scored_rewards(episode: Episode) -> tuple[float, float]:
    """(r1, r2). Raises UsageError where one is missing."""
    if episode.r1 is None or episode.r2 is None:
        raise UsageError(f"the episode of problem {episode.problem_id} has a turn without a verdict")
    return episode.r1, episode.r2
