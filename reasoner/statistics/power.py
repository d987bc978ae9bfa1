"""How small a difference an experiment can show: power of McNemar's exact test, minimal detectable differences."""

from reasoner.errors import UsageError

STEPS = 40
"""Halvings of the search for a difference: finer than one problem in any set."""


def mcnemar_power(n: int, gained: float, lost: float, alpha: float = 0.05) -> float:
    """Chance that McNemar's exact two-sided test rejects at `alpha` on `n` problems.

    `gained` and `lost` are the chances that one problem flips either way. Exact: the test's rejection region for
    every number of flips, which is binomial(n, gained + lost). Raises UsageError for chances that cannot be.
    """
    if n < 0 or gained < 0 or lost < 0 or gained + lost > 1 + 1e-12:
        raise UsageError(f"flips with chances {gained} and {lost} on {n} problems cannot be")
    share = min(1.0, gained + lost)
    if share == 0 or n == 0:
        return 0.0
    import numpy as np
    from scipy.stats import binom

    flips = np.arange(n + 1)
    chance = binom.pmf(flips, n, share)
    # The largest count k with 2 P(X <= k) <= alpha under a fair coin; -1 where even 0 is not rare enough.
    low = binom.ppf(alpha / 2, flips, 0.5)
    low = np.where(2 * binom.cdf(low, flips, 0.5) <= alpha, low, low - 1)
    rejected = binom.cdf(low, flips, gained / share) + binom.sf(flips - low - 1, flips, gained / share)
    return float((chance * np.where(low < 0, 0.0, rejected)).sum())


def minimal_difference(n: int, flipped: float, power: float = 0.8, alpha: float = 0.05) -> float | None:
    """The smallest difference of accuracies that the exact test would find with `power`, where a share `flipped` of
    `n` problems flips (more, where the difference itself needs more). None where no difference would be found.
    """

    def reached(difference: float) -> bool:
        share = max(flipped, difference)
        return mcnemar_power(n, (share + difference) / 2, (share - difference) / 2, alpha) >= power

    if not reached(1.0):
        return None
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
        if high - low < 1e-4:
            break
    return high


def minimal_mean_difference(standard_error: float, power: float = 0.8, alpha: float = 0.05) -> float:
    """The smallest mean difference that a two-sided test of this standard error finds with `power`: (z₁ + z₂) · se.

    Source: M. Bland, An Introduction to Medical Statistics, chapter 18; normal approximation.
    """
    from scipy.stats import norm

    return float((norm.ppf(1 - alpha / 2) + norm.ppf(power)) * standard_error)
