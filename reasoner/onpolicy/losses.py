"""The clipped policy loss of GRPO and its kin, a token at a time.

    ρ = exp(log π − log π_old)         loss = −min(ρ A, clip(ρ, 1−ε_low, 1+ε_high) A) + β k3
    k3 = exp(Δ) − Δ − 1,  Δ = log π_ref − log π     (differentiable, per token)

PPO (Schulman et al. 2017, eq. 7) with k3 as in DeepSeekMath (Shao et al. 2024, eq. 4). Aggregation: `grpo` averages
each sequence, then the sequences; `dapo` sums tokens over the number of active tokens of the whole batch (Yu et al.
2025, eq. 8); `dr_grpo` over B · max_tokens (Liu et al. 2025). Each is a sum over rows with a divisor that is known
before the first micro-batch, so cutting a batch changes rounding only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from reasoner.errors import TrainingError

Aggregation = Literal["grpo", "dapo", "dr_grpo"]
Correction = Literal["behaviour", "truncated", "none"]


@dataclass(frozen=True, slots=True)
class LossSettings:
    """How the loss is taken."""

    aggregation: Aggregation = "dapo"
    clip_low: float = 0.2
    clip_high: float = 0.2
    correction: Correction = "behaviour"
    """What is done about sampler and trainer being a little apart. `behaviour`: π_old is the sampler. `truncated`:
    π_old is the trainer, and tokens are weighted by min(π/π_sampler, truncation), without gradient. `none`."""
    truncation: float = 3.0
    max_tokens: int = 0
    """The completion limit; `dr_grpo` divides by it."""

    def __post_init__(self) -> None:
        if self.aggregation == "dr_grpo" and self.max_tokens < 1:
            raise TrainingError("dr_grpo divides by the completion limit; set max_tokens")


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Of the whole batch, whatever the micro-batch: active rows (weight above 0) and their tokens."""

    rows: int
    tokens: int


@dataclass(frozen=True, slots=True)
class LossInputs:
    """One micro-batch. All [B, T] are 0 outside `mask`."""

    logprobs: Any
    """[B, T], with gradient."""
    sampled: Any
    """[B, T], the sampler's."""
    reference: Any
    """[B, T], or None where no row has a KL coefficient."""
    advantages: Any
    """[B, T]."""
    mask: Any
    """[B, T] float: the row's weight on its tokens, 0 on padding."""
    kl: Any
    """[B], the rows' KL coefficients."""
    size: BatchSize
    rows: tuple[int, ...]
    """Which rows of the call these are."""
    entropy: Any = None
    """[B, T] without gradient, where it was asked for."""


@dataclass(slots=True)
class LossParts:
    """A loss with gradient, and sums over tokens for the log (divided by their number later)."""

    loss: Any
    sums: dict[str, float]


TokenLoss = Callable[[LossInputs], LossParts]
"""The micro-batch's share of the batch's loss: divide by `inputs.size`, never by the micro-batch's own size."""


def clipped_policy_loss(settings: LossSettings) -> TokenLoss:
    """The loss above, as the learner takes it."""

    def loss(inputs: LossInputs) -> LossParts:
        import torch

        current, mask = inputs.logprobs, inputs.mask
        old = inputs.sampled if settings.correction == "behaviour" else current.detach()
        ratio = torch.exp((current - old) * (mask > 0))
        clipped = ratio.clamp(1 - settings.clip_low, 1 + settings.clip_high)
        token_loss = -torch.minimum(ratio * inputs.advantages, clipped * inputs.advantages)
        if settings.correction == "truncated":
            weight = torch.exp((current.detach() - inputs.sampled) * (mask > 0))
            token_loss = token_loss * weight.clamp(max=settings.truncation)
        sums = {"clipped": _count((ratio != clipped) * mask), "ratio": _sum(ratio * mask)}
        if inputs.reference is not None:
            delta = (inputs.reference - current) * (mask > 0)
            k3 = torch.exp(delta) - delta - 1
            token_loss = token_loss + inputs.kl[:, None] * k3
            sums["kl"] = _sum(k3 * mask)
        return LossParts(aggregate(token_loss, mask, inputs.size, settings), sums)

    return loss


def aggregate(token_loss: Any, mask: Any, size: BatchSize, settings: LossSettings) -> Any:
    """A micro-batch's share of the batch's loss, from [B, T] token losses."""
    weighted = token_loss * mask
    if settings.aggregation == "dapo":
        return weighted.sum() / max(size.tokens, 1)
    if settings.aggregation == "dr_grpo":
        return weighted.sum() / (max(size.rows, 1) * settings.max_tokens)
    lengths = (mask > 0).sum(dim=1).clamp(min=1)
    return (weighted.sum(dim=1) / lengths).sum() / max(size.rows, 1)


def _sum(values: Any) -> float:
    return float(values.detach().sum())


def _count(values: Any) -> float:
    return float((values.detach() > 0).sum())
