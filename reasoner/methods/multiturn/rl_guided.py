"""RL-guided SCoRe: SCoRe's solver, with a feedback writer that is trained, too (METHODS 3.6).

    solver     stages I and II of SCoRe on the attempt and the refinement
    feedback   L_H = -mean((R' - b)·log π_H(g)) + β_H·KL(g),   R' = R or ±1,   b leave-one-out over the group

There is no value shaping. The original has b = 0 and ignores its KL coefficient; both are mended here.
"""

from collections.abc import Sequence
from typing import Literal

from reasoner.errors import UsageError
from reasoner.methods.multiturn.advantages import Credit, leave_one_out, minus
from reasoner.methods.multiturn.episode import Episode, groups
from reasoner.methods.multiturn.score import scored_rewards

RewardScale = Literal["binary", "pm1"]


def scaled(reward: float, scale: RewardScale) -> float:
    """R' of a reward in [0, 1]: itself, or 2R - 1."""
    return 2.0 * reward - 1.0 if scale == "pm1" else reward


def feedback_rewards(
    episodes: Sequence[Episode], scale: RewardScale, leak_penalty: float = 0.0
) -> list[float]:
    """R' of the refinement, less the penalty where the feedback gives the answer away."""
    found = []
    for episode in episodes:
        _, r2 = scored_rewards(episode)
        found.append(scaled(r2, scale) - (leak_penalty if episode.leak else 0.0))
    return found


def feedback_credits(
    episodes: Sequence[Episode], rewards: Sequence[float], kl: Sequence[float], kl_coef: float, in_loss: bool
) -> list[Credit]:
    """Credits of the feedback turns, against the leave-one-out baseline."""
    taken = [r - (0.0 if in_loss else kl_coef * k) for r, k in zip(rewards, kl, strict=True)]
    advantages = minus(taken, leave_one_out(taken, groups(list(episodes))))
    return credits_of(episodes, advantages, kl_coef if in_loss else 0.0)


def credits_of(episodes: Sequence[Episode], advantages: Sequence[float], kl_coef: float) -> list[Credit]:
    """One credit a feedback turn. Raises UsageError for an episode without one."""
    found = []
    for i, (episode, advantage) in enumerate(zip(episodes, advantages, strict=True)):
        if episode.feedback is None:
            raise UsageError(f"the episode of problem {episode.problem_id} has no feedback turn")
        found.append(Credit(episode.feedback, advantage, kl_coef, i))
    return found
