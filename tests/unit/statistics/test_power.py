"""Simulations with fixed seeds: how often the tests of `compare` cry wolf, and whether power is as predicted.

Wrong if the exact test rejects a true null in more than 5 % (beyond simulation error), the cluster bootstrap outside
of 5 ± 1.5 %, or a difference of the predicted size is found less or more often than predicted.
"""

import numpy as np
import pytest

from reasoner.errors import UsageError
from reasoner.statistics import mcnemar_exact, mcnemar_power, minimal_difference, minimal_mean_difference
from reasoner.statistics.bootstrap import cluster_test

SIMULATIONS = 4000
ERROR = 3 * (0.05 * 0.95 / SIMULATIONS) ** 0.5


def rejections(n: int, gained: float, lost: float, seed: int) -> float:
    random = np.random.default_rng(seed)
    flips = random.multinomial(n, [gained, lost, 1 - gained - lost], SIMULATIONS)
    pairs, counts = np.unique(flips[:, :2], axis=0, return_counts=True)
    return (
        sum(c for (g, b), c in zip(pairs, counts, strict=True) if mcnemar_exact(int(b), int(g)) < 0.05)
        / SIMULATIONS
    )


@pytest.mark.parametrize(("n", "flip"), [(50, 0.1), (200, 0.2), (1319, 0.15)])
def test_the_exact_test_never_exceeds_its_level(n: int, flip: float) -> None:
    assert rejections(n, flip / 2, flip / 2, seed=n) <= 0.05 + ERROR


def test_power_is_as_predicted_and_exactly_so_in_small() -> None:
    assert rejections(300, 0.12, 0.05, seed=1) == pytest.approx(mcnemar_power(300, 0.12, 0.05), abs=0.025)
    assert rejections(80, 0.25, 0.05, seed=2) == pytest.approx(mcnemar_power(80, 0.25, 0.05), abs=0.025)
    # Six problems that all flip one way, p = 2/64, are the least that the exact test calls significant.
    assert mcnemar_power(6, 1.0, 0.0) == pytest.approx(1.0) and mcnemar_power(5, 1.0, 0.0) == 0.0
    assert mcnemar_power(6, 0.5, 0.5) == pytest.approx(2 / 64)


def test_the_minimal_difference_has_the_power_that_it_names() -> None:
    for n, flip in ((155, 0.2), (1319, 0.1)):
        found = minimal_difference(n, flip)
        assert found is not None
        share = max(flip, found)
        assert mcnemar_power(n, (share + found) / 2, (share - found) / 2) == pytest.approx(0.8, abs=0.02)
    assert minimal_difference(5, 0.5) is None
    with pytest.raises(UsageError):
        mcnemar_power(10, 0.9, 0.9)


def clustered(
    random: np.random.Generator, n: int, samples: int, gain: float
) -> tuple[np.ndarray, np.ndarray]:
    """Samples of problems of different difficulty; `gain` is added to every chance of b."""
    chance = random.beta(2, 2, n) * (1 - gain)
    draw = lambda p: (random.random((n, samples)) < p[:, None]).astype(float)  # noqa: E731
    return draw(chance), draw(chance + gain)


def cluster_rejections(n: int, samples: int, gain: float, times: int) -> tuple[float, float]:
    """Share of rejections at 5 %, and the mean standard error."""
    random = np.random.default_rng(n + samples)
    tests = [
        cluster_test(*(side.tolist() for side in clustered(random, n, samples, gain)), resamples=400, seed=i)
        for i in range(times)
    ]
    return sum((t.p or 0) <= 0.05 for t in tests) / times, float(np.mean([t.standard_error for t in tests]))


@pytest.mark.parametrize(("n", "samples"), [(60, 4), (150, 8)])
def test_the_cluster_bootstrap_keeps_its_level(n: int, samples: int) -> None:
    """2,000 simulations have a standard error of 0.5 points; seeds are fixed."""
    assert cluster_rejections(n, samples, 0.0, 2000)[0] == pytest.approx(0.05, abs=0.015)


def test_the_cluster_bootstrap_has_the_power_predicted_from_its_error() -> None:
    _, error = cluster_rejections(100, 4, 0.0, 50)
    power, _ = cluster_rejections(100, 4, minimal_mean_difference(error), 400)
    assert power == pytest.approx(0.8, abs=0.08)
