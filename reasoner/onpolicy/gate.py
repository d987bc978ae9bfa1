"""Whether the sampler and the trainer are the same policy: checked before the first step, watched afterwards.

Before the first update both hold the same weights, so the log-probabilities of the sampled tokens must agree up to
arithmetic. Seen: a mean absolute difference of 0.005 on a GPU in bfloat16, 0.03 between a bfloat16 engine and a float32
trainer on a CPU (METHODS 1.3.3). A wrong adapter, template, temperature or tokenizer gives 0.1 to several nats.

What it can't see: at step 0 a fresh LoRA changes nothing, so an adapter that was never sent shows up at step 1 only.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reasoner.errors import TrainingError
from reasoner.onpolicy.diagnosis import Probe, Rows, likely_cause
from reasoner.records import Record

THRESHOLDS = {"float32": 0.005, "bfloat16": 0.05, "float16": 0.02}
"""Largest mean |difference| in nats a token at step 0, by the coarser precision of sampler and trainer."""
DRIFT_STOP = 0.5
"""Mean |difference| at which a later step stops the run: the sampler no longer has the policy's weights."""


class OffPolicyError(TrainingError):
    """The samples did not come from the policy that is trained; the message says how far off, and why."""


def coarser(served: str, trained: str, *, fresh: bool) -> str:
    """The coarsest precision between sampler and trainer, both named as in THRESHOLDS.

    An adapter travels in bfloat16; a fresh one changes nothing, so its rounding does not count.
    """
    passed = [served, trained] if fresh else [served, trained, "bfloat16"]
    return max(passed, key=THRESHOLDS.__getitem__)


def require_close(
    mean: float, limit: float, cause: Callable[[], str], *, at: str = "", precision: str = ""
) -> None:
    """Raises OffPolicyError, with the cause, unless the mean |difference| in nats a token is at most `limit`.

    `at` names the step; `precision` is that of a limit at the start, a later one is the drift's.
    """
    if mean <= limit:  # not so where it is no number
        return
    of, asked = (
        (f" for {precision}", ".") if precision else ("", ": was the adapter sent after the last step?")
    )
    raise OffPolicyError(
        f"{at}sampler and trainer differ by {mean:.3f} nats a token (limit {limit:g}{of}){asked} {cause()}"
    )


@dataclass(frozen=True, slots=True)
class Drift(Record):
    """How far sampler and trainer were apart at one step, in nats a token."""

    mean: float
    """Mean absolute difference."""
    largest: float
    kl: float
    """Mean of sampler less trainer: the k1 estimate of KL(sampler ‖ trainer), since the sampler drew the tokens."""
    tokens: int

    def metrics(self) -> dict[str, float]:
        return {"drift/mean": self.mean, "drift/max": self.largest, "drift/kl": self.kl}


def measure(sampler: Rows, trainer: Rows) -> Drift:
    """The drift over all tokens, both as rows of [T]. Raises TrainingError where there is nothing to compare."""
    differences: list[float] = []
    for row, (a, b) in enumerate(zip(sampler, trainer, strict=True)):
        if len(a) != len(b):
            raise TrainingError(
                f"sample {row}: {len(a)} sampled tokens, {len(b)} scored; the tokens were changed"
            )
        differences += [x - y for x, y in zip(a, b, strict=True)]
    if not differences:
        raise TrainingError("no token was sampled, so sampler and trainer cannot be compared")
    absolute = [abs(d) for d in differences]
    count = len(differences)
    return Drift(sum(absolute) / count, max(absolute), sum(differences) / count, count)


def mean_difference(sampler: Sequence[Sequence[float]], trainer: Sequence[Sequence[float]]) -> float:
    """Mean over all tokens of |log π_sampler − log π_trainer|, both as rows of [T]. Raises TrainingError."""
    difference = measure(sampler, trainer).mean
    if difference != difference:
        raise TrainingError(
            "a log-probability is not a number; look for overflow or an untrained adapter with NaN"
        )
    return difference


class Gate:
    """`check(...)` once a step: the first call is the step-0 gate, later ones watch the drift. One a run."""

    def __init__(
        self,
        precision: str = "bfloat16",
        *,
        threshold: float | None = None,
        stop: float = DRIFT_STOP,
        log: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.threshold = THRESHOLDS[precision] if threshold is None else threshold
        self.stop = stop
        self.history: list[Drift] = []
        """The drift of every step that passed."""
        self._precision = precision
        self._log = log

    def check(self, sampler: Rows, trainer: Rows, *, probes: Mapping[str, Probe] | None = None) -> float:
        """The mean difference, to be logged; call it before the optimiser's step.

        `probes` maps a cause to a function that computes the trainer's rows as they would be if that were the cause;
        they are tried only when the two differ. Raises OffPolicyError, with the likely cause, above the threshold.
        """
        drift = measure(sampler, trainer)
        first = not self.history
        limit = self.threshold if first else self.stop
        require_close(
            drift.mean, limit, lambda: likely_cause(sampler, trainer, limit, probes or {}),
            at="step 0: " if first else "", precision=self._precision if first else "",
        )  # fmt: skip
        self.history.append(drift)
        if first:
            self._log(f"the sampler is on policy: {drift.mean:.2g} nats a token apart (limit {limit:g})")
        return drift.mean
