"""Tests of two models on the same problems, and of many such tests together."""

from collections.abc import Sequence

from reasoner.errors import UsageError


def fair_tail(k: int, n: int) -> float:
    """P(X <= k) for the heads X of `n` fair coins: a sum of whole numbers, so exact but for the last division.

    scipy's says the same (tested), and importing it would be a seventh of the time of a run that finds everything in
    the cache.
    """
    term = total = 1
    for i in range(k):
        term = term * (n - i) // (i + 1)
        total += term
    return total / 2**n


def mcnemar_exact(b: int, c: int) -> float:
    """Two-sided exact p of McNemar's test from the discordant counts.

    `b` problems are right for the first model only, `c` for the second only. Under the null hypothesis `b` is
    binomial(b + c, 1/2); p = min(1, 2 P(X <= min(b, c))). Without discordant problems p is 1.
    Source: Q. McNemar, Psychometrika 12 (1947) 153-157.
    """
    if b < 0 or c < 0:
        raise UsageError(f"discordant counts cannot be negative: {b}, {c}")
    return min(1.0, 2 * fair_tail(min(b, c), b + c))


def paired_interval(gained: int, lost: int, n: int, confidence: float) -> tuple[float, float]:
    """Interval of (gained - lost)/n. Source: Agresti and Min, Statistics in Medicine 24 (2005) 729-740: Wald's
    interval after adding 0.5 to each of the four cells. Without pairs nothing is known: (-1, 1)."""
    if n == 0:
        return -1.0, 1.0
    from scipy.stats import norm

    b, c, total = gained + 0.5, lost + 0.5, n + 2.0
    middle = (b - c) / total
    half = float(norm.ppf(0.5 + confidence / 2)) * ((b + c) - (b - c) ** 2 / total) ** 0.5 / total
    return max(-1.0, middle - half), min(1.0, middle + half)


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values, in the order given; they bound the family-wise error.

    Source: S. Holm, Scand. J. Statist. 6 (1979) 65-70; statsmodels' say the same (tested), and its import takes a
    second. Raises UsageError for a p outside [0, 1].
    """
    for p in ps:
        if not 0 <= p <= 1:
            raise UsageError(f"{p} is not a p-value: it must be from 0 to 1")
    adjusted, least = [0.0] * len(ps), 0.0
    for rank, i in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        least = adjusted[i] = min(1.0, max(least, (len(ps) - rank) * ps[i]))
    return adjusted
