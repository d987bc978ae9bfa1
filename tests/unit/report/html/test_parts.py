"""Packing and charts. Wrong if a text does not come back as it was, or a point or a tick lies outside of its chart."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reasoner.records import Problem
from reasoner.report.html.charts import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    axis,
    line_chart,
    thinned,
    ticks,
    whole_windows,
)
from reasoner.report.html.pack import CHUNK, UNNAMED, pack, packed, unpacked
from reasoner.report.html.trajectories import Collection, Trajectory
from reasoner.statistics import estimate

numbers = st.floats(-1e6, 1e6)


def collection(rows: int) -> Collection:
    found = Collection()
    for i in range(rows):
        problem = found.problem(Problem.make(f"question {i % 7}", "1", ""))
        found.rows.append(
            Trajectory(problem, f"arm {i % 3}", "test", "cot", "correct" if i % 2 else "incorrect", "", "1", i, "stop",
                       0, {"kind": "answer", "response": f"text {i}"})
        )  # fmt: skip
    return found


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_packed_data_come_back_and_hold_no_markup(value: object) -> None:
    text = packed(value)
    assert "<" not in text and unpacked(text) == value


def test_half_a_character_becomes_a_sign_and_no_error() -> None:
    assert unpacked(packed(["a\ud83d"])) == ["a?"]


def test_columns_and_chunks_hold_every_row_in_order() -> None:
    given_ = collection(2 * CHUNK + 3)
    found = pack(given_)
    index = unpacked(found.index)
    assert index["rows"] == 2 * CHUNK + 3 and len(found.chunks) == 3
    assert index["names"]["arm"] == ["arm 0", "arm 1", "arm 2"] and index["columns"]["arm"][:4] == [
        0,
        1,
        2,
        0,
    ]
    assert index["names"]["reason"] == [UNNAMED] == index["names"]["dataset"]
    texts = [body["response"] for chunk in found.chunks for body in unpacked(chunk)]
    assert texts == [f"text {i}" for i in range(2 * CHUNK + 3)]
    assert pack(given_) == found


def test_flips_need_two_models_and_count_problems_that_one_did_not_answer() -> None:
    found = collection(6)
    found.add_flips("x", {"a": {0: 0}})
    assert not found.flips
    found.add_flips("x", {"a": {0: 0, 1: 1, 2: 2}, "b": {0: 1, 1: 3}})
    assert found.flips[0].patterns == {"01": 1, "11": 1, "0-": 1} and found.flips[0].rows == [[0, 0, 1]]


@given(numbers, numbers, st.integers(3, 8))
@example(-1000000.0, -999999.9999999999, 3)
def test_ticks_are_round_and_span_the_values(a: float, b: float, about: int) -> None:
    low, high = min(a, b), max(a, b)
    found = ticks(low, high, about)
    slack = 1e-6 * max(1.0, abs(low), abs(high))
    assert 2 <= len(found) <= about + 3 and found[0] <= low + slack and found[-1] >= high - slack


@given(st.lists(st.tuples(st.integers(0, 10_000), numbers), min_size=1, max_size=50))
def test_lines_stay_inside_their_chart(points: list[tuple[float, float]]) -> None:
    chart = line_chart("x", {"a": points})
    assert chart is not None
    for x, y in [tuple(map(float, p.split(","))) for p in chart.lines[0].path[1:].split("L")]:
        assert LEFT - 0.1 <= x <= WIDTH - RIGHT + 0.1 and TOP - 0.1 <= y <= HEIGHT - BOTTOM + 0.1
    assert all(LEFT - 0.1 <= t.at <= WIDTH - RIGHT + 0.1 for t in chart.x_ticks)


def test_missing_values_are_left_out_and_long_series_thinned() -> None:
    assert line_chart("x", {"a": [(1, math.nan)], "b": []}) is None
    chart = line_chart("x", {"a": [(1, 0.5), (2, math.inf), (3, 1.5)], "b": [(1, 0.0)]})
    assert chart is not None and chart.lines[0].last == 1.5 and "b ends at 0" in chart.summary
    assert chart.rows[0] == ("1", "0.5", "0") and chart.rows[1] == ("3", "1.5", "")
    long = thinned([(float(i), 1.0) for i in range(10_001)])
    assert len(long) <= MOST and long[-1] == (10_000.0, pytest.approx(1.0))


def test_a_last_window_of_one_step_is_no_end_of_a_curve() -> None:
    """Ten windows of ten steps and one step more, whose loss is high."""
    points = [(10.0 * i, 1.0) for i in range(1, 11)]
    kept = whole_windows([*points, (101.0, 12.0)])
    assert [x for x, _ in kept] == [*(10.0 * i for i in range(1, 10)), 101.0]
    assert kept[-1][1] == pytest.approx((10 * 1.0 + 12.0) / 11)
    assert whole_windows([*points, (105.0, 3.0)]) == [*points, (105.0, 3.0)]
    assert whole_windows(points[:2]) == points[:2]


def test_one_axis_holds_every_interval_and_is_no_magnifying_glass() -> None:
    assert axis([]) == axis([estimate(0, 0)]) == Axis(0.0, 1.0)
    close = axis([estimate(600, 1000), estimate(604, 1000)])
    assert close.low <= 0.5 and close.high >= 0.7 and close.high - close.low >= 0.4
    assert axis([estimate(0, 20), estimate(20, 20)]) == Axis(0.0, 1.0)
    assert axis([estimate(999, 1000)]) == Axis(0.6, 1.0)


@given(st.lists(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1))
def test_an_interval_is_never_drawn_beyond_its_axis(counts: list[tuple[int, int]]) -> None:
    found = [estimate(k, n) for k, n in counts]
    where = axis(found)
    for one in found:
        assert where.low - 1e-9 <= one.low <= one.high <= where.high + 1e-9
        assert 0 <= where.at(one.low) <= where.at(one.value) <= where.at(one.high) <= 1
