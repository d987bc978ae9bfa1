"""MLMT-RL (two levels, three turns): a solver π_L, a feedback writer π_H, a value network V (METHODS 3.3).

Solver, with V1 = V(x), V3 = V(x,z,g) and R the refinement's reward:

    per_state   L_L = -mean[ sg(R - V1)·lp(z) + sg(R - V3)·lp(ŷ) ] + β·(KL(z) + KL(ŷ))
    single      V3 in both places: the README's literal form. E[R - V3 | x, z] = 0 starves turn 1.
    rloo        leave-one-out over the group in both places, no network

Feedback, with V2 = V(x,z):

    shaping  =  V3  |  V3 - V2  |  V3 - V*
    L_H      =  -mean( (sg(R' + λ·shaping) - b)·lp(g) ) + β_H·KL(g)
    b        =  leave-one-out of R' + λ·shaping, or sg(V2) ((1+λ)·V2 where shaping = V3)
    full-grad:  L_H - λ·mean V_{ψ,φ}(x,z,g), a gradient into π_H's parameters φ (see `full_grad_term`)

Values are on the scale of R'. V* is V after the solver's updates of a cycle, V the snapshot before them; that is an
approximation of the optimal actor's value. Departures: the original leaves L_H without a baseline and without any
gradient, and lets V see the refinement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from reasoner.errors import UsageError
from reasoner.methods.multiturn.advantages import Credit, leave_one_out, minus
from reasoner.methods.multiturn.episode import Episode, groups
from reasoner.methods.multiturn.rl_guided import RewardScale, credits_of, feedback_rewards, scaled
from reasoner.methods.multiturn.score import scored_rewards

Baseline = Literal["per_state", "single", "rloo"]
Shaping = Literal["v3_minus_v2", "v3", "v3_minus_vstar"]


@dataclass(frozen=True, slots=True)
class Values:
    """V(x), V(x,z), V(x,z,g) and V*(x,z,g) of each episode, on {0, 1}; `vstar` only where the shaping needs it."""

    v1: Sequence[float]
    v2: Sequence[float]
    v3: Sequence[float]
    vstar: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class SolverSettings:
    """How the solver's turns are credited."""

    baseline: Baseline
    beta: float
    in_loss: bool


@dataclass(frozen=True, slots=True)
class FeedbackSettings:
    """How the feedback's turns are credited; `value_coef` is λ."""

    shaping: Shaping
    value_coef: float
    baseline: Literal["rloo", "v2"]
    scale: RewardScale
    kl_coef: float
    in_loss: bool
    leak_penalty: float = 0.0


def active(step: int, ratio: tuple[int, int]) -> tuple[bool, bool]:
    """Whether the (solver, feedback writer) learns in iteration `step` from 0: t_L solver updates, then t_H of the
    feedback writer; 1:1 is both every time."""
    solver, feedback = ratio
    if ratio == (1, 1):
        return True, True
    at = step % (solver + feedback)
    return at < solver, at >= solver


def solver_credits(
    episodes: Sequence[Episode], kl_z: Sequence[float], kl_y: Sequence[float], values: Values | None,
    settings: SolverSettings,
) -> list[Credit]:  # fmt: skip
    """Credits of the attempt and the refinement; both earn the terminal reward R. Raises UsageError without values
    for a baseline that needs them."""
    rows, found = list(episodes), []
    terminal = [scored_rewards(episode)[1] for episode in rows]
    for kind, kl in (("attempt", kl_z), ("refinement", kl_y)):
        taken = [
            r - (0.0 if settings.in_loss else settings.beta * k) for r, k in zip(terminal, kl, strict=True)
        ]
        advantages = minus(taken, _solver_baseline(kind, rows, taken, values, settings.baseline))
        for i, episode in enumerate(rows):
            turn = getattr(episode, kind)
            found.append(Credit(turn, advantages[i], settings.beta if settings.in_loss else 0.0, i))
    return found


def _solver_baseline(
    kind: str, rows: list[Episode], taken: Sequence[float], values: Values | None, baseline: Baseline
) -> Sequence[float]:
    if baseline == "rloo":
        return leave_one_out(taken, groups(rows))
    if values is None:
        raise UsageError(f"baseline={baseline} needs the value network; baseline=rloo does not")
    return values.v1 if kind == "attempt" and baseline == "per_state" else values.v3


def shaped(values: Values, shaping: Shaping) -> list[float]:
    """The shaping term of each episode, on {0, 1}. Raises UsageError where V* is wanted and missing."""
    if shaping == "v3":
        return list(values.v3)
    if shaping == "v3_minus_v2":
        return minus(values.v3, values.v2)
    if values.vstar is None:
        raise UsageError("shaping=v3_minus_vstar needs V*, the value after the solver's updates of a cycle")
    return minus(values.v3, values.vstar)


def feedback_credits(
    episodes: Sequence[Episode], kl: Sequence[float], values: Values | None, settings: FeedbackSettings
) -> list[Credit]:
    """Credits of the feedback turns (see the header)."""
    rows, lam = list(episodes), settings.value_coef
    rewards = feedback_rewards(rows, settings.scale, settings.leak_penalty)
    if values is not None and lam:
        terms = shaped(values, settings.shaping)
        if settings.scale == "pm1":
            # V -> 2V - 1: a difference is doubled, V3 itself is moved, too.
            terms = [scaled(t, "pm1") if settings.shaping == "v3" else 2.0 * t for t in terms]
        rewards = [r + lam * t for r, t in zip(rewards, terms, strict=True)]
    taken = [
        r - (0.0 if settings.in_loss else settings.kl_coef * k) for r, k in zip(rewards, kl, strict=True)
    ]
    if settings.baseline == "rloo":
        baseline = leave_one_out(taken, groups(rows))
    elif values is None:
        raise UsageError("guidance_baseline=v2 needs the value network")
    else:
        factor = 1.0 + lam if settings.shaping == "v3" else 1.0
        baseline = [factor * scaled(v, settings.scale) for v in values.v2]
    return credits_of(rows, minus(taken, baseline), settings.kl_coef if settings.in_loss else 0.0)


def value_loss(v1: Any, v2: Any, v3: Any, rewards: Any) -> Any:
    """L_V = mean[(V1-R)² + (V2-R)² + (V3-R)²]/3 on Monte-Carlo targets R in {0, 1}; tensors [N]."""
    return (((v1 - rewards) ** 2 + (v2 - rewards) ** 2 + (v3 - rewards) ** 2) / 3.0).mean()


def full_grad_term(v3: Any, value_coef: float, scale: RewardScale) -> Any:
    """-λ·V_{ψ,φ}(x,z,g) [N], on the scale of R': added to L_H. The head's own ψ must not receive this gradient, which
    would only inflate it: `v3` is computed with ψ detached and φ not."""
    return -value_coef * scaled(v3, scale)


def literal_term(logprob: Any, v3: Any, value_coef: float, scale: RewardScale) -> Any:
    """The original's -lp(g)·λV with V not detached and lp detached [N]: it moves V down with the feedback's length."""
    return -value_coef * logprob.detach() * scaled(v3, scale)
