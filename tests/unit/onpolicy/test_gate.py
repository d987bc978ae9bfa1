"""The gate lets the same policy through, stops another, and names the cause; the drift limit is the wider one.

Wrong if a planted fault passes, if padding counts, or if a fault is named as another.
"""

import math
from typing import Any

import pytest
import torch

from reasoner.errors import TrainingError
from reasoner.onpolicy.gate import Gate, Limits, OffPolicyError, measure

LIMITS = Limits(first=0.02, drift=0.1)
ROWS, WIDTH = 8, 40


def numbers() -> tuple[torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    values = -3 * torch.rand(ROWS, WIDTH, generator=draw)
    lengths = torch.tensor([40, 30, 20, 10, 40, 35, 12, 5])
    return values, torch.arange(WIDTH)[None] < lengths[:, None]


def cause(sampler: torch.Tensor, trainer: torch.Tensor, mask: torch.Tensor, **more: Any) -> str:
    with pytest.raises(OffPolicyError) as caught:
        Gate(LIMITS, log=lambda line: None).observe(sampler, trainer, mask, step=0, **more)
    assert "at the first step" in str(caught.value) and "(limit 0.02)" in str(caught.value)
    return str(caught.value).split("Likely cause: ")[1]


def test_the_measure_is_the_mean_over_completion_tokens_only() -> None:
    values, mask = numbers()
    other = torch.where(mask, values + 0.01, values + 50)
    drift = measure(other, values, mask, 3)
    assert (drift.step, drift.tokens) == (3, int(mask.sum()))
    assert [drift.mean, drift.largest, drift.kl] == pytest.approx([0.01] * 3, abs=1e-5)


def test_a_close_sampler_passes_and_drift_has_a_limit_of_its_own() -> None:
    values, mask = numbers()
    said: list[str] = []
    gate = Gate(LIMITS, log=said.append)
    gate.observe(values + 0.01, values, mask, step=0)
    assert "on policy" in said[0]
    gate.observe(values + 0.09, values, mask, step=1)
    with pytest.raises(OffPolicyError, match=r"at step 2 \(limit 0\.1\)"):
        gate.observe(values + 0.11, values, mask, step=2)
    assert [drift.step for drift in gate.history] == [0, 1]


def test_a_first_step_above_the_limit_stops() -> None:
    values, mask = numbers()
    with pytest.raises(OffPolicyError):
        Gate(LIMITS).observe(values + 0.021, values, mask, step=0)


def test_a_probe_that_explains_the_difference_names_the_cause() -> None:
    values, mask = numbers()
    noise = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
    sampler = values + noise
    probes = {"wrong idea": lambda: values + 2 * noise, "right idea": lambda: values + noise + 0.001}
    assert cause(sampler, values, mask, probes=probes) == "right idea"


def test_a_shift_by_one_token_is_seen() -> None:
    values, mask = numbers()
    assert "shifted by one" in cause(values.roll(1, dims=1), values, mask)
    assert "shifted by one" in cause(values.roll(-1, dims=1), values, mask)


def test_a_prompt_that_ends_differently_is_seen() -> None:
    values, mask = numbers()
    sampler = values.clone()
    sampler[:, 0] -= 3
    assert "add_special_tokens" in cause(sampler, values, mask)


def test_mixed_up_rows_are_seen() -> None:
    values, mask = numbers()
    sampler = values.clone()
    sampler[[0, 4]] = values[[4, 0]]
    assert cause(sampler, values, mask).startswith("2 of 8 rows")


def test_a_cut_distribution_is_seen() -> None:
    values, mask = numbers()
    assert "top_p" in cause(values + 0.2, values, mask)


def test_what_is_not_finite_never_passes() -> None:
    values, mask = numbers()
    broken = values.clone()
    broken[0, 0] = math.nan
    assert "not finite" in cause(broken, values, mask)


def test_unknown_causes_are_not_made_up() -> None:
    values, mask = numbers()
    noise = torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))
    assert "other weights or arithmetic" in cause(values + noise, values, mask)


def test_nothing_to_compare_is_an_error_not_a_pass() -> None:
    values, mask = numbers()
    with pytest.raises(TrainingError, match="no token"):
        Gate(LIMITS).observe(values, values, mask & False, step=0)
    with pytest.raises(TrainingError, match="shapes"):
        Gate(LIMITS).observe(values[:, 1:], values, mask, step=0)


def test_limits_grow_with_the_coarser_precision() -> None:
    exact, half, mixed = (
        Limits.of(*pair) for pair in (("float32",) * 2, ("bfloat16",) * 2, ("bfloat16", "float32"))
    )
    assert exact.first < 0.005 < half.first < 0.03 < mixed.first
    assert all(limits.first < limits.drift for limits in (exact, half, mixed))
