"""Whether a mean has risen between two groups of problems that need not be the same: a one-sided bootstrap test."""

from collections.abc import Sequence
from dataclasses import dataclass

from reasoner.records import Record
from reasoner.statistics.bootstrap import PIECE


@dataclass(frozen=True, slots=True)
class Rise(Record):
    """Means of the two groups; `p` is one-sided, for a rise. Unset where a group is empty."""

    n_before: int
    """Problems."""
    n_after: int
    before: float | None
    after: float | None
    p: float | None


def pooled_rise(
    before: Sequence[float], after: Sequence[float], *, resamples: int = 10_000, seed: int = 0
) -> Rise:
    """mean(after) − mean(before), one value a problem, against both groups drawn with replacement from all values.

    Source: B. Efron and R. Tibshirani, An Introduction to the Bootstrap (1993), algorithm 16.1; p counts the
    observed sample, (1 + as large)/(1 + resamples). A problem that is in both groups makes the test cautious.
    """
    n, m = len(before), len(after)
    if not n or not m:
        return Rise(n, m, None, None, None)
    import numpy as np

    a, b = np.asarray(before, float), np.asarray(after, float)
    pool, random = np.concatenate([a, b]), np.random.default_rng(seed)
    seen, large = float(b.mean() - a.mean()), 0
    for done in range(0, resamples, PIECE):
        drawn = pool[random.integers(0, n + m, (min(PIECE, resamples - done), n + m))]
        large += int((drawn[:, n:].mean(1) - drawn[:, :n].mean(1) >= seen - 1e-12).sum())
    return Rise(n, m, float(a.mean()), float(b.mean()), (1 + large) / (1 + resamples))
