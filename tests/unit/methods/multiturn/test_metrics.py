"""Two-turn accuracy with its identity, and the signals of a rollout."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.errors import UsageError
from reasoner.methods.multiturn import metrics
from reasoner.methods.multiturn.episode import Episode, Kind
from reasoner.statistics import paired_interval
from tests.unit.methods.multiturn.making import episode, turn


@settings(deadline=None)  # the first call imports scipy
@given(st.lists(st.tuples(st.sampled_from([0, 1, -1]), st.sampled_from([0, 1, -1])), max_size=30))
def test_delta_is_gained_minus_lost(pairs):
    found = metrics.two_turns([episode("p", i, a, b) for i, (a, b) in enumerate(pairs)])
    scored = [(a, b) for a, b in pairs if -1 not in (a, b)]
    assert found.n == len(scored) and found.unscored == len(pairs) - len(scored)
    assert found.delta * found.n == pytest.approx(found.i_to_c - found.c_to_i)
    assert (found.i_to_c, found.c_to_i) == (scored.count((0, 1)), scored.count((1, 0)))
    assert found.delta_low - 0.5 <= found.delta <= found.delta_high + 0.5
    assert found.acc_t1.k == sum(a for a, _ in scored) and found.acc_t2.k == sum(b for _, b in scored)


def test_the_interval_of_delta_covers_what_it_says():
    """Simulated: 95 % intervals of paired proportions hold the true difference in 92 to 98 % of the draws."""
    from random import Random

    rng, hits, draws = Random(3), 0, 1000
    for _ in range(draws):
        flips = rng.choices((1, -1, 0), (0.2, 0.1, 0.7), k=120)
        low, high = paired_interval(flips.count(1), flips.count(-1), 120, 0.95)
        hits += low <= 0.1 <= high
    assert 0.92 <= hits / draws <= 0.98
    assert paired_interval(0, 0, 0, 0.95) == (-1.0, 1.0)


def test_a_single_turn_has_no_delta():
    with pytest.raises(UsageError, match="no second turn"):
        metrics.two_turns([episode("p", 0, 1, None)])
    found = metrics.rollout_metrics([episode("p", 0, 1, None), episode("p", 1, 0, None)])
    assert found["acc_t1"] == 0.5 and "acc_t2" not in found and found["zero_variance_share"] == 0.0


def test_a_rollouts_signals():
    rows = [
        episode("p", 0, 0, 1, leak=True, texts=("x\ny", "g", "x\nz")),
        episode("p", 1, 1, 1, leak=False, texts=("x", "g", "x")),
        episode("q", 0, -1, 0, leak=False),
    ]
    found = metrics.rollout_metrics(rows)
    assert found["acc_t1"] == 0.5 and found["acc_t2"] == 1.0 and found["delta"] == 0.5
    assert found["i_to_c"] == 0.5 and found["c_to_i"] == 0.0
    assert found["zero_variance_share"] == 1.0 and found["unscored_rate"] == pytest.approx(1 / 3)
    assert found["leak_rate"] == pytest.approx(1 / 3) and found["attempt_tokens"] == 2
    assert found["edit"] == pytest.approx((0.5 + 0.0 + 1.0) / 3)


def test_hack_suspects_are_counted_where_no_test_is_hidden_and_nowhere_where_nobody_looks():
    def judged(signs):
        made = turn(Kind.ATTEMPT, "p", 0)
        return Episode("p", 0, replace(made, judged=replace(made.judged, signs=signs)))

    found = metrics.rollout_metrics([judged(()), judged(("exits early",))])
    assert found["attempt_hack_suspects"] == 0.5 and "attempt_unshown" not in found
    assert "attempt_hack_suspects" not in metrics.rollout_metrics([judged(None)])
    for signs in (None, (), ("exits early",)):
        assert Episode.from_row(judged(signs).to_row()) == judged(signs)


def test_explained_variance():
    assert metrics.explained_variance([0.0, 1.0], [0.0, 1.0]) == 1.0
    assert metrics.explained_variance([0.5, 0.5], [0.0, 1.0]) == 0.0
    assert metrics.explained_variance([1.0, 0.0], [0.0, 1.0]) == -3.0
    assert metrics.explained_variance([0.3, 0.1], [1.0, 1.0]) is None
    assert [metrics.variance(list(x)) for x in itertools.product([0.0], repeat=1)] == [0.0]
