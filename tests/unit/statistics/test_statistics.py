"""Known values, library agreement and properties of intervals, paired tests and sample statistics."""

import itertools
import math
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.errors import UsageError
from reasoner.statistics import estimate, holm, majority, mcnemar_exact, pass_at_k, wilson
from reasoner.statistics.worse import mcnemar_worse


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [
        (8, 10, 0.490162, 0.943318),
        (0, 10, 0.0, 0.277533),
        (10, 10, 0.722467, 1.0),
        (
            81,
            263,
            0.255289,
            0.366210,
        ),  # Newcombe, Statistics in Medicine 17 (1998) 857, table I: .2553 to .3662
    ],
)
def test_wilson_known_values(k: int, n: int, low: float, high: float) -> None:
    assert wilson(k, n) == pytest.approx((low, high), abs=2e-6)


@given(
    kn=st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))),
    confidence=st.floats(0.5, 0.999),
)
def test_wilson_says_what_scipy_says(kn: tuple[int, int], confidence: float) -> None:
    from scipy.stats import binomtest

    theirs = binomtest(*kn).proportion_ci(confidence_level=confidence, method="wilson")
    assert wilson(*kn, confidence) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_wilson_without_trials_knows_nothing() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert estimate(0, 0).value is None


@pytest.mark.parametrize(("k", "n", "confidence"), [(-1, 3, 0.95), (4, 3, 0.95), (1, 3, 0.0), (1, 3, 1.0)])
def test_wilson_refuses_impossible_input(k: int, n: int, confidence: float) -> None:
    with pytest.raises(UsageError):
        wilson(k, n, confidence)


counts = st.integers(1, 3000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@settings(deadline=None)
@given(counts, st.floats(0.5, 0.99))
def test_wilson_solves_the_score_equation(kn: tuple[int, int], confidence: float) -> None:
    """Each bound is a p at which |k/n - p| is exactly z standard errors: the definition."""
    from scipy.stats import norm

    k, n = kn
    z = norm.ppf((1 + confidence) / 2)
    low, high = wilson(k, n, confidence)
    assert 0 <= low <= k / n <= high <= 1
    for p in (low, high):
        assert (k / n - p) ** 2 == pytest.approx(z * z * p * (1 - p) / n, abs=1e-9)


@settings(deadline=None)
@given(counts)
def test_wilson_mirrors_and_widens(kn: tuple[int, int]) -> None:
    k, n = kn
    low, high = wilson(k, n)
    assert wilson(n - k, n) == pytest.approx((1 - high, 1 - low), abs=1e-9)
    wider = wilson(k, n, 0.99)
    assert wider[0] <= low and high <= wider[1]


@pytest.mark.parametrize(
    ("b", "c", "p"),
    [(0, 0, 1.0), (1, 9, 22 / 1024), (9, 1, 22 / 1024), (0, 5, 2 / 32), (3, 3, 1.0), (0, 20, 2 / 2**20)],
)
def test_mcnemar_known_values(b: int, c: int, p: float) -> None:
    assert mcnemar_exact(b, c) == pytest.approx(p, rel=1e-12)


def test_mcnemar_refuses_negative_counts() -> None:
    with pytest.raises(UsageError):
        mcnemar_exact(-1, 2)


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(0, 200))
def test_mcnemar_agrees_with_statsmodels_and_is_symmetric(b: int, c: int) -> None:
    from statsmodels.stats.contingency_tables import mcnemar

    p = mcnemar_exact(b, c)
    assert p == mcnemar_exact(c, b)
    if b + c:
        assert p == pytest.approx(mcnemar([[5, b], [c, 7]], exact=True).pvalue, rel=1e-9)


@settings(deadline=None)
@given(st.integers(0, 400), st.integers(0, 400))
def test_both_exact_tests_say_what_scipy_says(lost: int, gained: int) -> None:
    from scipy.stats import binomtest

    if lost + gained:
        assert mcnemar_exact(lost, gained) == pytest.approx(binomtest(lost, lost + gained).pvalue, rel=1e-10)
        worse = binomtest(lost, lost + gained, alternative="greater").pvalue
        assert mcnemar_worse(lost, gained) == pytest.approx(worse, rel=1e-10)


def test_many_flips_neither_overflow_nor_take_long() -> None:
    assert mcnemar_exact(30_000, 30_000) == 1.0
    assert mcnemar_exact(10_000, 30_000) == 0.0  # smaller than a float can be


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_says_what_statsmodels_says(ps: list[float]) -> None:
    from statsmodels.stats.multitest import multipletests

    assert holm(ps) == ([] if not ps else list(multipletests(ps, method="holm")[1]))


def test_the_tests_of_a_cached_run_load_neither_scipy_nor_statsmodels() -> None:
    program = """
import sys
from reasoner.statistics import estimate, holm, mcnemar_exact
from reasoner.statistics.worse import mcnemar_worse
estimate(1, 2), holm([0.1, 0.2]), mcnemar_exact(1, 9), mcnemar_worse(9, 1)
print([name for name in ("scipy", "statsmodels", "pandas") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_holm_known_values() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.2]) == [0.2]
    with pytest.raises(UsageError):
        holm([1.2])


@settings(deadline=None, max_examples=25)  # each call of statsmodels collects garbage: 50 ms
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_raw_and_bonferroni_and_keeps_the_order(ps: list[float]) -> None:
    adjusted = holm(ps)
    for p, q in zip(ps, adjusted, strict=True):
        assert p <= q + 1e-12 and q <= min(1.0, p * len(ps)) + 1e-12
    for (p, q), (r, s) in itertools.combinations(zip(ps, adjusted, strict=True), 2):
        assert (p - r) * (q - s) >= -1e-12


def test_majority() -> None:
    assert majority(["3", "4", "4", None]) == "4"
    assert majority(["7", "5", "5", "7"]) == "7"
    assert majority([None, None]) is None
    assert majority([]) is None


@settings(deadline=None)
@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_sample(nck: tuple[int, int, int]) -> None:
    n, c, k = nck
    subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, subsets)) / len(subsets))


def test_pass_at_k_edges() -> None:
    assert pass_at_k(10, 0, 5) == 0.0
    assert pass_at_k(200, 1, 1) == pytest.approx(1 / 200)
    assert math.isclose(pass_at_k(5, 3, 3), 1.0)
    for bad in [(3, 4, 1), (3, 1, 4), (3, 1, 0)]:
        with pytest.raises(UsageError):
            pass_at_k(*bad)
