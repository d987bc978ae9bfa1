"""Whether the sampler and the trainer are the same policy: checked before the first step, watched afterwards.

Before the first update both hold the same weights, so the log-probabilities of the sampled tokens must agree up to
arithmetic. Seen: a mean absolute difference of 0.005 on a GPU in bfloat16, 0.03 between a bfloat16 engine and a float32
trainer on a CPU (METHODS 1.3.3). A wrong adapter, template, temperature or tokenizer gives 0.1 to several nats.
"""

from collections.abc import Sequence

from reasoner.errors import TrainingError

THRESHOLDS = {"float32": 0.005, "bfloat16": 0.05, "float16": 0.02}
"""Largest mean |difference| in nats a token at step 0, by the coarser precision of sampler and trainer."""
DRIFT_STOP = 0.5
"""Mean |difference| at which a later step stops the run: the sampler no longer has the policy's weights."""


def mean_difference(sampler: Sequence[Sequence[float]], trainer: Sequence[Sequence[float]]) -> float:
    """Mean over all tokens of |log π_sampler − log π_trainer|, both as rows of [T]. Raises TrainingError."""
    total, count = 0.0, 0
    for row, (a, b) in enumerate(zip(sampler, trainer, strict=True)):
        if len(a) != len(b):
            raise TrainingError(
                f"sample {row}: {len(a)} sampled tokens, {len(b)} scored; the tokens were changed"
            )
        total += sum(abs(x - y) for x, y in zip(a, b, strict=True))
        count += len(a)
    if not count:
        raise TrainingError("no token was sampled, so sampler and trainer cannot be compared")
    difference = total / count
    if difference != difference:
        raise TrainingError(
            "a log-probability is not a number; look for overflow or an untrained adapter with NaN"
        )
    return difference


class Gate:
    """`check(...)` once a step: the first call is the step-0 gate, later ones watch the drift."""

    def __init__(
        self, precision: str = "bfloat16", *, threshold: float | None = None, stop: float = DRIFT_STOP
    ) -> None:
        self.threshold = THRESHOLDS[precision] if threshold is None else threshold
        self.stop = stop
        self._precision = precision
        self._passed = False

    def check(self, sampler: Sequence[Sequence[float]], trainer: Sequence[Sequence[float]]) -> float:
        """The mean difference, to be logged. Raises TrainingError, with the likely cause, above the threshold."""
        difference = mean_difference(sampler, trainer)
        if not self._passed:
            if difference > self.threshold:
                raise TrainingError(
                    f"step 0: sampler and trainer differ by {difference:.3f} nats a token "
                    f"(limit {self.threshold:g} for {self._precision}). {_likely_cause(sampler, trainer)}"
                )
            self._passed = True
        elif difference > self.stop:
            raise TrainingError(
                f"sampler and trainer differ by {difference:.3f} nats a token (limit {self.stop:g}): was the adapter "
                "sent after the last step?"
            )
        return difference


def _likely_cause(sampler: Sequence[Sequence[float]], trainer: Sequence[Sequence[float]]) -> str:
    """What the differences look like: one early token a row, a common factor, or everything."""
    first = [abs(a[0] - b[0]) for a, b in zip(sampler, trainer, strict=True) if a]
    rest = [
        abs(x - y) for a, b in zip(sampler, trainer, strict=True) for x, y in zip(a[1:], b[1:], strict=True)
    ]
    mean_first, mean_rest = sum(first) / max(len(first), 1), sum(rest) / max(len(rest), 1)
    if mean_first > 10 * max(mean_rest, 1e-3):
        return "Only first tokens differ: the prompts end differently (chat template, begin or end token)."
    ratios = sorted(
        x / y for a, b in zip(sampler, trainer, strict=True) for x, y in zip(a, b, strict=True) if y < -0.5
    )
    if len(ratios) >= 8:
        low, high = ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
        if high - low < 0.25 and not 0.9 < (low + high) / 2 < 1.1:
            return "The differences are proportional: the trainer's temperature is not the sampler's."
    return "Check that the sampler has this adapter, and that both use one tokenizer, template and precision."
