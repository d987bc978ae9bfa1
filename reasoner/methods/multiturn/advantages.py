"""Baselines and the credit of a turn: what the optimiser loop needs to know of one sampled turn.

RLOO (METHODS 1.3.1): A_i = r_i - (1/(n-1)) Σ_{j≠i} r_j over the episodes of one problem. Advantages are never divided
by a standard deviation: on all-wrong groups a shaped reward would be blown up to unit scale.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reasoner.errors import UsageError
from reasoner.methods.multiturn.episode import Turn


@dataclass(frozen=True, slots=True)
class Credit:
    """A turn to learn from: L = -advantage · (clipped) log π(turn) + kl_coef · KL3(turn)."""

    turn: Turn
    advantage: float
    kl_coef: float = 0.0
    """Coefficient of the differentiable KL; 0 where the KL is in the reward."""
    episode: int = 0
    """Row of the rollout that the turn belongs to."""


def leave_one_out(rewards: Sequence[float], members: Iterable[Sequence[int]]) -> list[float]:
    """The mean reward of the other members of each one's group: b_i, to be taken off r_i.

    A group of one has no others: its advantage is 0, so b_i = r_i (an episode whose mates were unscored).
    """
    baseline = list(rewards)
    seen = 0
    for group in members:
        total, n = sum(rewards[i] for i in group), len(group)
        seen += n
        for i in group:
            if n > 1:
                baseline[i] = (total - rewards[i]) / (n - 1)
    if seen != len(rewards):
        raise UsageError(f"{seen} members in groups for {len(rewards)} rewards")
    return baseline


def minus(rewards: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """A_i = r_i - b_i."""
    return [r - b for r, b in zip(rewards, baseline, strict=True)]


def zero_variance_share(rewards: Sequence[float], members: Sequence[Sequence[int]]) -> float:
    """Share of groups whose binary rewards are all equal: they teach nothing under a group baseline."""
    if not members:
        return 0.0
    return sum(len({rewards[i] for i in group}) == 1 for group in members) / len(members)
