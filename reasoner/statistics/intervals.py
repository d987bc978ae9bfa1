"""Proportions with their intervals."""

from dataclasses import dataclass

from reasoner.errors import UsageError
from reasoner.records import Record


def wilson(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval, without continuity correction, of `k` successes in `n` trials.

    Source: E. B. Wilson, JASA 22 (1927) 209-212; computed by scipy. Without trials nothing is known: (0, 1).
    Raises UsageError for counts that cannot be, or a confidence outside (0, 1).
    """
    if not 0 <= k <= n:
        raise UsageError(
            f"{k} successes in {n} trials cannot be: the count must be from 0 to the number of trials"
        )
    if not 0 < confidence < 1:
        raise UsageError(f"confidence {confidence} must be between 0 and 1, for example 0.95")
    if n == 0:
        return 0.0, 1.0
    from scipy.stats import binomtest

    interval = binomtest(k, n).proportion_ci(confidence_level=confidence, method="wilson")
    return float(interval.low), float(interval.high)


@dataclass(frozen=True, slots=True)
class Estimate(Record):
    """`k` of `n`, with the interval of the proportion. `value` is unset where `n` is 0."""

    k: int
    n: int
    value: float | None
    low: float
    high: float


def estimate(k: int, n: int, confidence: float = 0.95) -> Estimate:
    """The proportion `k / n` with its Wilson interval."""
    low, high = wilson(k, n, confidence)
    return Estimate(k, n, k / n if n else None, low, high)
