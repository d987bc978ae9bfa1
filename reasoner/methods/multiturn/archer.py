"""ArCHer (Zhou et al., arXiv 2402.19446): an off-policy critic of utterances, a policy gradient on tokens (METHODS
3.7).

    critic   L_Q = Σ_i (Q_i(s,a) - [r + γ(1-d)·V̄_i(s')])²        a from the buffer
             L_V = Σ_i (V_i(s) - Q̄_i(s,a'))²                      a' ~ π(·|s), freshly sampled
    targets  ψ̄ ← (1-τ)ψ̄ + τψ after every critic step
    actor    A = min_i Q_i(s,a') - min_i V_i(s);   L = -mean(sg(A)·log π(a'|s)), tokens summed

Here an episode has one action (d = 1), so Q(x,y) → R and V(x) → E_π R: Q is a learned reward model, whose errors the
actor can exploit; `r_minus_v` takes the reward itself (Monte Carlo). Not covered: the optional token-level baseline.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Literal

from reasoner.errors import UsageError
from reasoner.methods.multiturn.advantages import Credit
from reasoner.methods.multiturn.episode import Episode

Advantage = Literal["q_minus_v", "r_minus_v"]


def q_target(reward: Any, done: Any, next_value: Any, gamma: float) -> Any:
    """r + γ(1-d)·V̄(s'), tensors [B]."""
    return reward + gamma * (1.0 - done) * next_value


def q_loss(q_2B: Any, target_2B: Any) -> Any:
    """Σ_i mean (Q_i - target_i)²; [2, B] tensors, the target without gradient."""
    return ((q_2B - target_2B.detach()) ** 2).mean(-1).sum()


def v_loss(v_2B: Any, target_q_2B: Any) -> Any:
    """Σ_i mean (V_i - Q̄_i(s, a'))²; [2, B] tensors, the target without gradient."""
    return ((v_2B - target_q_2B.detach()) ** 2).mean(-1).sum()


def advantage(q_2B: Any, v_2B: Any) -> Any:
    """[B]: min_i Q_i(s,a') - min_i V_i(s)."""
    return (q_2B.min(0).values - v_2B.min(0).values).detach()


def polyak(targets: Iterable[Any], sources: Iterable[Any], tau: float) -> None:
    """Move every target parameter by τ towards its source, in place."""
    import torch

    with torch.no_grad():
        for target, source in zip(targets, sources, strict=True):
            target.lerp_(source.detach().to(target.dtype), tau)


def actor_credits(episodes: Sequence[Episode], advantages: Sequence[float], kl_coef: float) -> list[Credit]:
    """Credits of freshly sampled attempts."""
    return [
        Credit(e.attempt, a, kl_coef, i) for i, (e, a) in enumerate(zip(episodes, advantages, strict=True))
    ]


class Replay:
    """The last `capacity` episodes; draws depend on the seed that is given, so a resumed run draws the same."""

    def __init__(self, capacity: int) -> None:
        self._episodes: deque[Episode] = deque(maxlen=capacity)

    def __len__(self) -> int:
        return len(self._episodes)

    def add(self, episodes: Iterable[Episode]) -> None:
        """Append scored episodes; unscored ones teach nothing and are passed over."""
        self._episodes.extend(e for e in episodes if e.scored)

    def draw(self, count: int, seed: int) -> list[Episode]:
        """`count` episodes, with replacement. Raises UsageError where the buffer is empty."""
        if not self._episodes:
            raise UsageError("the replay buffer is empty: no episode of the rollouts so far has a verdict")
        rng = Random(seed)
        return [self._episodes[rng.randrange(len(self._episodes))] for _ in range(count)]
