"""Do sampler and trainer agree? The gate before the first optimiser step, and the drift after it.

The measure is the mean absolute difference of the two log-probabilities over the completion tokens. Seen: 0.005 with
both in bfloat16 on a card, 0.03 between a bfloat16 engine and a float32 trainer on a CPU. A first step above the limit
stops the run with the likely cause (diagnosis.py); later steps are logged, with a wider limit that stops, too.

What it can't see: at step 0 a fresh LoRA changes nothing, so an adapter that was never sent shows up at step 1 only.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reasoner.errors import TrainingError
from reasoner.onpolicy.diagnosis import Probe, likely_cause
from reasoner.records import Record


class OffPolicyError(TrainingError):
    """The samples did not come from the policy that is trained; the message says how far off, and why."""


@dataclass(frozen=True, slots=True)
class Limits(Record):
    """Mean absolute log-probability differences, in nats a token."""

    first: float
    """At the first step of a run."""
    drift: float
    """At any later one."""

    @classmethod
    def of(cls, sampler_dtype: str, trainer_dtype: str) -> "Limits":
        """The limits of a pair of precisions (`float32`, `bfloat16`, `float16`); what one computes in counts."""
        pair = {sampler_dtype, trainer_dtype}
        if pair == {"float32"}:
            return cls(0.002, 0.02)
        if pair == {"float16"}:
            return cls(0.01, 0.05)
        if "float32" in pair:
            return cls(0.06, 0.2)
        return cls(0.02, 0.1)


@dataclass(frozen=True, slots=True)
class Drift(Record):
    """How far sampler and trainer were apart at one step."""

    step: int
    mean: float
    """Mean absolute difference."""
    largest: float
    kl: float
    """Mean of sampler less trainer: the k1 estimate of KL(sampler ‖ trainer), since the sampler drew the tokens."""
    tokens: int

    def metrics(self) -> dict[str, float]:
        return {"drift/mean": self.mean, "drift/max": self.largest, "drift/kl": self.kl}


class Gate:
    """Measures every step and stops the run that is off. One a run; a resumed run gates its first step again."""

    def __init__(self, limits: Limits, *, log: Callable[[str], None] = print) -> None:
        self.limits = limits
        self.history: list[Drift] = []
        self._log = log

    def observe(
        self,
        sampler_BT: Any,
        trainer_BT: Any,
        mask_BT: Any,
        *,
        step: int,
        probes: Mapping[str, Probe] | None = None,
    ) -> Drift:
        """Compare [B, T] log-probabilities where `mask_BT` is set; call it before the optimiser's step.

        `probes` maps a cause to a function that computes what the trainer would say if that were the cause.
        Raises OffPolicyError above the limit and TrainingError when nothing can be compared.
        """
        drift = measure(sampler_BT, trainer_BT, mask_BT, step)
        first = not self.history
        limit = self.limits.first if first else self.limits.drift
        if not drift.mean <= limit:  # also when it is not a number
            cause = likely_cause(sampler_BT, trainer_BT, mask_BT, limit, probes or {})
            when = "at the first step" if first else f"at step {step}"
            raise OffPolicyError(
                f"Sampler and trainer differ by {drift.mean:.4g} nats a token {when} (limit {limit:g}). "
                f"Likely cause: {cause}"
            )
        self.history.append(drift)
        if first:
            self._log(f"the sampler is on policy: {drift.mean:.2g} nats a token apart (limit {limit:g})")
        return drift


def measure(sampler_BT: Any, trainer_BT: Any, mask_BT: Any, step: int) -> Drift:
    """The drift of one batch. Raises TrainingError for shapes that differ or an empty mask."""
    if sampler_BT.shape != trainer_BT.shape or sampler_BT.shape != mask_BT.shape:
        raise TrainingError(
            f"log-probabilities of shapes {tuple(sampler_BT.shape)} and {tuple(trainer_BT.shape)} can't be compared"
        )
    chosen = mask_BT.bool()
    if not chosen.any():
        raise TrainingError(f"step {step} has no token to compare: every row is masked")
    difference_N = (sampler_BT - trainer_BT).detach()[chosen].double()
    return Drift(
        step,
        difference_N.abs().mean().item(),
        difference_N.abs().max().item(),
        difference_N.mean().item(),
        difference_N.numel(),
    )
