"""Two independent first attempts at equal compute: their shares, and the trained turn's lead with its interval."""

import pytest

from reasoner.methods.multiturn.episode import Episode
from reasoner.report.independent import measure, sentence
from reasoner.statistics import mcnemar_exact, wilson
from tests.unit.methods.multiturn.making import episode

SAMPLES = [(0, 0)] * 20 + [(1, 0)] * 10 + [(1, 1)] * 10
"""The rewards of both samples, by problem."""
SECOND = [1] * 12 + [0] * 8 + [1] * 9 + [0] + [1] * 10
"""The trained turn's."""


def drawn(rewards: list[tuple[float, float]]) -> list[Episode]:
    return [episode(f"p{i}", k, r, None) for i, pair in enumerate(rewards) for k, r in enumerate(pair)]


def trained(seconds: list[int], first: int = 0) -> list[Episode]:
    return [episode(f"p{i}", 0, first, r) for i, r in enumerate(seconds)]


def test_shares_have_intervals_and_the_trained_turn_is_paired_with_both() -> None:
    found = measure(drawn(SAMPLES), trained(SECOND), 2)
    assert found["n"] == 40 and found["one"]["value"] == pytest.approx(15 / 40)
    assert 0.2 < found["one"]["low"] < 15 / 40 < found["one"]["high"] < 0.55
    assert (found["either"]["low"], found["either"]["high"]) == wilson(20, 40)
    one, either = found["against_one"], found["against_either"]
    assert (
        one["value"] == pytest.approx((31 - 15) / 40)
        and 0 < one["low"] < 0.4 < one["high"]
        and one["p"] < 0.01
    )
    assert (either["only_main"], either["only_control"]) == (12, 1)
    assert either["value"] == pytest.approx(11 / 40) and 0 < either["low"] < 11 / 40 < either["high"]
    assert either["p"] == mcnemar_exact(12, 1)


def test_a_turn_that_an_oracle_would_beat_is_told_so() -> None:
    """Above one sample, below both: the second turn is worth less than a second attempt could be."""
    found = measure(drawn([(1, 0), (0, 1)] * 30 + [(0, 0)] * 20), trained([1, 1, 1, 0] * 15 + [0] * 20), 2)
    assert found["against_one"]["low"] > 0 and found["against_either"]["high"] < 0
    assert found["against_either"]["p"] < 0.001
    said = sentence(found)
    assert "Turn 2 of the trained policy" in said and "-0.188" in said and "+0.188" in said


def test_the_turn_is_the_one_that_the_method_trains() -> None:
    found = measure(drawn([(0, 0)] * 8), trained([0] * 8, first=1), 1)
    assert found["turn"] == 1 and found["against_either"]["only_main"] == 8
    assert "at twice the compute" in sentence(found), "of one turn"


def test_what_has_no_verdict_is_left_out() -> None:
    samples = drawn([(1, 1), (0, -1), (0, 0)])
    found = measure(samples, trained([1, 1, -1]), 2)
    assert found["n"] == 2 and found["against_one"]["n"] == found["against_either"]["n"] == 1
    nothing = measure([], trained([1]), 2)
    assert nothing["n"] == 0 and nothing["against_either"]["value"] is None
