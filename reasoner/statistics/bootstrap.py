"""Intervals and tests of paired differences by resampling problems."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Test(Record):
    """A paired test of the mean of b − a over `n` problems; unset without two problems."""

    n: int
    value: float | None
    low: float | None
    high: float | None
    p: float | None
    standard_error: float | None


def cluster_test(
    a: Sequence[Sequence[float]],
    b: Sequence[Sequence[float]],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Test:
    """Paired cluster bootstrap: row i holds all scores of problem i, which is drawn or not as a whole.

    The statistic is the mean over problems of (mean of b − mean of a), studentised; interval and two-sided p come
    from the same symmetric bootstrap-t distribution, so they agree at the border. Problems may have different
    numbers of samples. Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap (1993), sections 12.5
    and 16.4; p counts the observed sample, (1 + extreme)/(1 + resamples). Raises UsageError where the problems
    differ in number or one has no score.
    """
    if len(a) != len(b):
        raise UsageError(f"a paired test needs the same problems: {len(a)} and {len(b)}")
    if not all(map(len, [*a, *b])):
        raise UsageError("a paired test needs a score of every problem on both sides")
    if len(a) < 2:
        value = sum(b[0]) / len(b[0]) - sum(a[0]) / len(a[0]) if a else None
        return Test(len(a), value, None, None, None, None)
    import numpy as np

    gaps = np.array([sum(y) / len(y) - sum(x) / len(x) for x, y in zip(a, b, strict=True)])
    n, mean, error = len(gaps), float(gaps.mean()), float(gaps.std(ddof=1) / len(gaps) ** 0.5)
    if error == 0.0:  # every problem says the same, so nothing can be resampled: the signs alone are tested
        return Test(n, mean, None, None, 1.0 if mean == 0.0 else 2.0 ** (1 - n), 0.0)
    extremes = _studentised(gaps, resamples, np.random.default_rng(seed))
    half = float(np.quantile(extremes, confidence)) * error
    beyond = int((extremes >= abs(mean) / error - 1e-12).sum())
    return Test(n, mean, max(-1.0, mean - half), min(1.0, mean + half), (1 + beyond) / (1 + resamples), error)


def _studentised(gaps: Any, resamples: int, random: Any) -> Any:
    """|mean* − mean| / se* of `resamples` resamples; a resample without spread counts as extreme if it is off."""
    import numpy as np

    found = []
    for done in range(0, resamples, PIECE):
        drawn = gaps[random.integers(0, len(gaps), (min(PIECE, resamples - done), len(gaps)))]
        off, spread = np.abs(drawn.mean(1) - gaps.mean()), drawn.std(1, ddof=1) / len(gaps) ** 0.5
        found.append(
            np.where(spread > 0, off / np.where(spread > 0, spread, 1.0), np.where(off > 0, np.inf, 0.0))
        )
    return np.concatenate(found)
