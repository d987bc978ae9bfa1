"""The gate of the multi-turn loop: in every iteration the sampler must be the policy that is trained (METHODS 1.3.3).

The trainer must see the tokens as likely as the sampler did, or the ratio is not a ratio. Narrow in a process's first
updates, by the precision; afterwards it watches the drift, which ends a run whose adapters no longer reach the engine.
"""

import math

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.hardware import served_dtype
from reasoner.onpolicy.diagnosis import UNKNOWN, likely_cause
from reasoner.onpolicy.gate import DRIFT_STOP, THRESHOLDS, OffPolicyError, coarser, require_close
from reasoner.training.multiturn.scoring import Scored

GATED = 2
"""The gate is narrow for so many updates of a process: the first, and the first with updated adapters."""
UNSENT = "The sampler speaks as the base does: the adapters did not reach it."
ANOTHER = "max_logprob_difference sets another limit."


class LoopGate:
    """`check(...)` once an update, before it. `device` is the trainer's: `cpu` or an accelerator's name."""

    def __init__(self, config: MultiTurnConfig, device: str) -> None:
        cpu = device == "cpu"
        # A server's `auto` is not known here: the coarser one is taken.
        self._served = served_dtype(config.engine.dtype, cpu and not config.compute.server.url)
        exact = config.precision == "fp32" or (config.precision == "auto" and cpu)
        self._trained = "float32" if exact else "bfloat16"
        self._asked, self._ratio = config.max_logprob_difference, config.max_ratio_difference
        self._updates = 0

    def threshold(self, fresh: bool) -> float:
        """Largest mean |difference| in nats a token of the first updates; `fresh` adapters have changed nothing yet."""
        return self._asked if self._asked is not None else THRESHOLDS[self._precision(fresh)]

    @property
    def stop(self) -> float:
        """Mean |difference| in nats a token above which a later update stops the run."""
        return max(DRIFT_STOP, self._asked or 0.0)

    def check(self, scored: Scored, step: int, *, fresh: bool) -> None:
        """Let an update of iteration `step` (from 1) pass, or raise OffPolicyError with the likely cause."""
        at, difference, limit = f"iteration {step}: ", scored.difference, self.threshold(fresh)
        if self._updates >= GATED:
            require_close(difference, self.stop, lambda: _cause(scored, limit), at=at)
            if not math.isfinite(scored.ratio):
                raise OffPolicyError(
                    f"{at}the mean ratio of trainer to sampler is {scored.ratio}. {_cause(scored, limit)}"
                )
            return
        require_close(
            difference, limit, lambda: f"{_cause(scored, limit)} {ANOTHER}", at=at, precision=self._precision(fresh)
        )  # fmt: skip
        if not abs(scored.ratio - 1.0) <= self._ratio:
            raise OffPolicyError(
                f"{at}the mean ratio of trainer to sampler is {scored.ratio:.4f} (within {self._ratio:g} of 1), at "
                f"{difference:.3f} nats a token. {_cause(scored, min(limit, difference / 2))} max_ratio_difference "
                "sets another limit."
            )
        self._updates += 1

    def _precision(self, fresh: bool) -> str:
        return coarser(self._served, self._trained, fresh=fresh)


def _cause(scored: Scored, limit: float) -> str:
    """The likely cause by the rows of this process: what brings the difference under `limit`."""
    keys = list(scored.trainer)
    if not keys:
        return UNKNOWN
    sampler, trainer = [scored.sampler[k] for k in keys], [scored.trainer[k] for k in keys]
    base = {UNSENT: lambda: [[float(x) for x in scored.reference[k]] for k in keys]}
    return likely_cause(sampler, trainer, limit, base)
