"""Intervals of paired differences by resampling problems."""

from collections.abc import Sequence
from dataclasses import dataclass

from reasoner.errors import UsageError
from reasoner.records import Record

PIECE = 500
"""Resamples drawn at once, which bounds the memory."""


@dataclass(frozen=True, slots=True)
class Difference(Record):
    """Mean of a − b over `n` problems with its percentile interval; unset without problems."""

    n: int
    value: float | None
    low: float | None
    high: float | None


def paired_difference(
    a: Sequence[float],
    b: Sequence[float],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Difference:
    """mean(a − b) of the same problems, with the percentile bootstrap interval over problems.

    Source: B. Efron, Annals of Statistics 7 (1979) 1-26. Raises UsageError where the lengths differ.
    """
    if len(a) != len(b):
        raise UsageError(f"a paired difference needs the same problems: {len(a)} and {len(b)} values")
    if not a:
        return Difference(0, None, None, None)
    import numpy as np

    gaps = np.asarray(a, float) - np.asarray(b, float)
    random = np.random.default_rng(seed)
    means = np.concatenate(
        [
            gaps[random.integers(0, len(gaps), (min(PIECE, resamples - done), len(gaps)))].mean(1)
            for done in range(0, resamples, PIECE)
        ]
    )
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Difference(len(gaps), float(gaps.mean()), float(low), float(high))
