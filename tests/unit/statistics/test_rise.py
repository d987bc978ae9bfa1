"""The one-sided bootstrap test of a rise, against exact enumeration and its own false alarms."""

import itertools

import numpy as np
import pytest

from reasoner.statistics.rise import pooled_rise


def test_p_is_the_share_of_all_resamples_that_rise_as_much() -> None:
    before, after = [0.0, 0.0, 1.0], [1.0, 1.0]
    seen = np.mean(after) - np.mean(before)
    every = [
        np.mean(drawn[3:]) - np.mean(drawn[:3]) >= seen - 1e-12
        for drawn in itertools.product(before + after, repeat=5)
    ]
    found = pooled_rise(before, after, resamples=40_000)
    assert (found.before, found.after) == (pytest.approx(1 / 3), 1.0)
    assert found.p == pytest.approx(np.mean(every), abs=0.01)


def test_a_fall_is_no_rise_and_equal_groups_are_neither() -> None:
    assert (pooled_rise([1.0] * 20, [0.0] * 20).p or 0) > 0.99
    assert pooled_rise([0.5] * 5, [0.5] * 9).p == 1.0


def test_two_problems_cannot_show_a_rise() -> None:
    assert (pooled_rise([0.0], [1.0]).p or 0) > 0.2


def test_without_a_group_nothing_is_known() -> None:
    assert pooled_rise([], [1.0]).p is None and pooled_rise([1.0], []).p is None


def test_false_alarms_are_as_rare_as_it_says() -> None:
    random = np.random.default_rng(1)
    alarms = [
        (pooled_rise(random.integers(0, 2, 40), random.integers(0, 2, 60), resamples=400).p or 0) < 0.05
        for _ in range(400)
    ]
    assert np.mean(alarms) < 0.085, "three standard errors above 0.05"
