"""The gate lets the same policy through, stops another, and names the cause; the drift limit is the wider one.

Wrong if a planted fault passes, or if a fault is named as another.
"""

import math
import random
from typing import Any

import pytest

from reasoner.errors import TrainingError
from reasoner.onpolicy.gate import DRIFT_STOP, THRESHOLDS, Gate, OffPolicyError, measure

LENGTHS = [40, 30, 20, 10, 40, 35, 12, 5]
Rows = list[list[float]]


def numbers() -> Rows:
    draw = random.Random(0)
    return [[-3 * draw.random() for _ in range(count)] for count in LENGTHS]


def noisy(rows: Rows, scale: float = 1.0) -> Rows:
    draw = random.Random(1)
    return [[value + scale * draw.gauss(0, 1) for value in row] for row in rows]


def plus(rows: Rows, value: float) -> Rows:
    return [[x + value for x in row] for row in rows]


def cause(sampler: Rows, trainer: Rows, **more: Any) -> str:
    with pytest.raises(OffPolicyError) as caught:
        Gate("bfloat16", threshold=0.02).check(sampler, trainer, **more)
    head, _, found = str(caught.value).partition(" for bfloat16). ")
    assert head.startswith("step 0: sampler and trainer differ by") and head.endswith("(limit 0.02")
    return found


def test_the_measure_is_the_mean_over_tokens() -> None:
    values = numbers()
    drift = measure(plus(values, 0.01), values)
    assert drift.tokens == sum(LENGTHS)
    assert [drift.mean, drift.largest, drift.kl] == pytest.approx([0.01] * 3)
    assert measure(noisy(values), values).mean == pytest.approx(math.sqrt(2 / math.pi), rel=0.15)


def test_a_close_sampler_passes_and_drift_has_a_limit_of_its_own() -> None:
    values, said = numbers(), list[str]()
    gate = Gate("bfloat16", threshold=0.02, stop=0.1, log=said.append)
    assert gate.check(plus(values, 0.01), values) == pytest.approx(0.01)
    assert "on policy" in said[0]
    gate.check(plus(values, 0.09), values)
    with pytest.raises(OffPolicyError, match=r"\(limit 0\.1\): was the adapter sent after the last step"):
        gate.check(plus(values, 0.11), values)
    assert [round(drift.mean, 6) for drift in gate.history] == [0.01, 0.09]


def test_a_first_step_above_the_limit_stops_even_below_the_drift_limit() -> None:
    values = numbers()
    with pytest.raises(OffPolicyError):
        Gate(threshold=0.02, stop=0.5).check(plus(values, 0.021), values)


def test_a_probe_that_explains_the_difference_names_the_cause() -> None:
    values = numbers()
    probes = {"Wrong idea.": lambda: noisy(values, 2.0), "Right idea.": lambda: plus(noisy(values), 0.001)}
    assert cause(noisy(values), values, probes=probes) == "Right idea."


def test_a_shift_by_one_token_is_seen() -> None:
    values = numbers()
    assert "shifted by one" in cause([[-9.0, *row[:-1]] for row in values], values)
    assert "shifted by one" in cause([[*row[1:], -9.0] for row in values], values)


def test_a_prompt_that_ends_differently_is_seen() -> None:
    values = numbers()
    assert "add_special_tokens" in cause([[row[0] - 3, *row[1:]] for row in values], values)


def test_mixed_up_rows_are_seen() -> None:
    values = numbers()
    assert cause([values[4], *values[1:4], values[0], *values[5:]], values).startswith("2 of 8 rows")


def test_another_temperature_is_seen() -> None:
    values = numbers()
    assert "temperature" in cause([[1.4 * x for x in row] for row in values], values)


def test_a_cut_distribution_is_seen() -> None:
    values = numbers()
    draw = random.Random(2)
    assert "top_p" in cause([[x + 0.3 * draw.random() for x in row] for row in values], values)


def test_what_is_not_finite_never_passes() -> None:
    values = numbers()
    for bad in (math.nan, math.inf, -math.inf):
        broken = [[bad, *values[0][1:]], *values[1:]]
        assert "not a number" in cause(broken, values)
        begun = Gate()
        begun.check(values, values)
        with pytest.raises(OffPolicyError, match="not a number"):
            begun.check(values, broken)


def test_unknown_causes_are_not_made_up() -> None:
    values = numbers()
    assert cause(noisy(values), values).startswith("Check that the sampler has this adapter")


def test_nothing_to_compare_is_an_error_not_a_pass() -> None:
    values = numbers()
    with pytest.raises(TrainingError, match="no token was sampled"):
        Gate().check([[], []], [[], []])
    with pytest.raises(TrainingError, match="sample 1: 30 sampled tokens, 29 scored"):
        Gate().check(values, [values[0], values[1][1:], *values[2:]])
    with pytest.raises(ValueError):
        Gate().check(values, values[:-1])


def test_limits_grow_with_the_coarser_precision() -> None:
    assert 0.002 < THRESHOLDS["float32"] < THRESHOLDS["float16"] < THRESHOLDS["bfloat16"] < DRIFT_STOP
    assert THRESHOLDS["bfloat16"] > 0.03  # a bfloat16 engine and a float32 trainer on a CPU
