"""The optimiser loop: the loss is the formula's, whatever the pieces; masked rows don't count; memory heals.

Wrong if a piece size, a padding or an idle row changes the update, if a KL has no gradient, if rows of one policy move
another, or if a full device loses a row.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from reasoner.errors import TrainingError
from reasoner.onpolicy.gate import Gate, OffPolicyError
from reasoner.onpolicy.learner import Learner, LearnerSettings
from reasoner.onpolicy.logprobs import plain_logprobs
from reasoner.onpolicy.losses import LossInputs, LossParts, LossSettings, clipped_policy_loss
from reasoner.onpolicy.parts import Part
from reasoner.onpolicy.rows import Row
from tests.unit.onpolicy.rows import batch_of, make_rows, make_sample, make_samples

QUIET: dict[str, Any] = {"log": lambda line: None}
PLAIN: dict[str, Any] = {"precision": "fp32", "lr": 1e-3}


def weights(learner: Learner) -> dict[str, Any]:
    return {name: p.detach().clone() for name, p in learner.trained.items()}


def gradient(model: Any, rows: list[Row], loss: LossSettings, **more: Any) -> dict[str, Any]:
    """The gradient that the learner's step uses, taken before the optimiser moves."""
    learner = Learner(model, LearnerSettings(precision="fp32", lr=0.0, loss=loss, **more), **QUIET)
    found: dict[str, Any] = {}
    learner.optimiser.register_step_pre_hook(
        lambda *_: found.update({n: p.grad.clone() for n, p in learner.trained.items() if p.grad is not None})
    )
    learner.settings = LearnerSettings(precision="fp32", lr=0.0, loss=loss, max_grad_norm=math.inf, **more)
    learner.step(rows)
    return found


def reference_gradient(model: Any, rows: list[Row], loss: LossSettings, max_tokens: int) -> dict[str, Any]:
    """The formula in plain words, a row at a time on all logits."""
    model.zero_grad()
    active = [row for row in rows if row.weight > 0]
    total_tokens = sum(len(row.sample.token_ids) for row in active)
    for row in active:
        batch = batch_of([row.sample])
        current = plain_logprobs(model, batch)[0]
        with torch.no_grad(), model.disable_adapter():
            base = plain_logprobs(model, batch)[0]
        ratio = torch.exp(current - torch.tensor(row.sample.logprobs))
        advantage = torch.tensor(row.advantages())
        low, high = 1 - loss.clip_low, 1 + loss.clip_high
        token = -torch.minimum(ratio * advantage, ratio.clamp(low, high) * advantage)
        token = token + row.kl * (torch.exp(base - current) - (base - current) - 1)
        divisor = {
            "dapo": total_tokens,
            "grpo": len(row.sample.token_ids) * len(active),
            "dr_grpo": len(active) * max_tokens,
        }[loss.aggregation]
        (token.sum() / divisor).backward()
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("aggregation", ["dapo", "grpo", "dr_grpo"])
@pytest.mark.parametrize("piece_tokens", [1, 40, 10_000])
def test_the_gradient_is_the_formulas_in_any_pieces(
    fresh: Callable[..., Any], aggregation: Any, piece_tokens: int
) -> None:
    model = fresh(std=0.2)
    rows = make_rows(model, 7, kl=0.3)
    rows[3] = Row(rows[3].sample, 5.0, weight=0.0)
    rows[4] = Row(rows[4].sample, tuple(0.1 * t for t in range(len(rows[4].sample.token_ids))), kl=0.0)
    with torch.no_grad():  # off policy by a little, so that ratios are not 1
        for name, p in model.named_parameters():
            if "lora_B" in name:
                p.mul_(1.05)
    settings = LossSettings(aggregation=aggregation, max_tokens=20, clip_low=0.05, clip_high=0.05)
    found = gradient(model, rows, settings, piece_tokens=piece_tokens)
    expected = reference_gradient(model, rows, settings, 20)
    assert found.keys() == expected.keys() and len(found) == 12
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], atol=1e-5, rtol=1e-3)


def test_the_kl_has_a_gradient(fresh: Callable[..., Any]) -> None:
    model = fresh(std=0.2)
    rows = [Row(s, 0.0, kl=0.5) for s in make_samples(model, 4)]
    found = gradient(model, rows, LossSettings())
    assert max(float(g.abs().max()) for g in found.values()) > 1e-4
    learner = Learner(model, LearnerSettings(**PLAIN), **QUIET)
    before = learner.step(rows)["kl"]
    for _ in range(20):
        numbers = learner.step(rows, fresh=False)
    assert 0 < numbers["kl"] < 0.5 * before


def test_the_update_raises_what_was_rewarded(fresh: Callable[..., Any]) -> None:
    model = fresh()
    rows = make_rows(model, 8)
    learner = Learner(model, LearnerSettings(precision="fp32", lr=5e-3), **QUIET)
    before = [sum(row) for row in learner.logprobs(rows)]
    for _ in range(5):
        learner.step(rows, fresh=False)
    after = [sum(row) for row in learner.logprobs(rows)]
    gains = [(b - a) * row.advantages()[0] for a, b, row in zip(before, after, rows, strict=True)]
    assert sum(gain > 0 for gain in gains) >= 7


def test_rows_that_can_not_move_anything_are_not_computed_but_count(fresh: Callable[..., Any]) -> None:
    model = fresh(std=0.2)
    rows = make_rows(model, 4)
    idle = [Row(s, 0.0) for s in make_samples(model, 4, seed=1)]
    seen: list[int] = []

    def counting(inputs: LossInputs) -> LossParts:
        seen.extend(inputs.rows)
        return clipped_policy_loss(LossSettings())(inputs)

    found = gradient(model, [*rows, *idle], LossSettings())
    expected = reference_gradient(model, [*rows, *idle], LossSettings(), 0)
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], atol=1e-6, rtol=1e-3)
    learner = Learner(model, LearnerSettings(**PLAIN), **QUIET)
    numbers = learner.step([*rows, *idle])
    assert (numbers["rows"], numbers["rows/idle"], numbers["rows/masked"]) == (8, 4, 0)
    learner.step([*rows, *idle], loss=counting)
    assert sorted(seen) == list(range(8))  # a loss of one's own sees every row


def test_a_batch_of_masked_rows_moves_nothing(fresh: Callable[..., Any]) -> None:
    learner = Learner(fresh(std=0.2), LearnerSettings(**PLAIN), **QUIET)
    before = weights(learner)
    numbers = learner.step([Row(s, 1.0, weight=0.0) for s in make_samples(learner.model, 3)])
    assert numbers["skipped"] == 1 and numbers["rows/masked"] == 3 and learner.steps == 1
    assert all((before[name] == p).all() for name, p in learner.trained.items())


def test_each_policy_moves_only_by_its_own_rows(fresh: Callable[..., Any]) -> None:
    model = fresh(names=("solver", "writer"), std=0.2)
    learner = Learner(model, LearnerSettings(**PLAIN), **QUIET)
    before = weights(learner)
    learner.step(make_rows(model, 4, policy="writer"))
    moved = {name for name, p in learner.trained.items() if (before[name] != p).any()}
    assert moved and all(".writer." in name for name in moved)
    learner.step([*make_rows(model, 4, policy="writer"), *make_rows(model, 4, policy="solver", seed=3)])
    moved = {name for name, p in learner.trained.items() if (before[name] != p).any()}
    assert any(".solver." in name for name in moved)
    assert all(p.requires_grad for p in learner.trained.values())
    with pytest.raises(TrainingError, match="not trained; the adapters are solver, writer"):
        learner.step([Row(make_sample((1,), (2,), (-1.0,), ""), 1.0)])


def test_another_adapter_can_be_the_reference(fresh: Callable[..., Any]) -> None:
    model = fresh(names=("default", "start"), std=0.2)
    samples = make_samples(model, 3)
    learner = Learner(model, LearnerSettings(**PLAIN, reference="start"), **QUIET)
    rows = [Row(s, 0.0, kl=1.0) for s in samples]
    by_start = learner.logprobs(rows, reference=True)
    model.set_adapter("start")
    with torch.no_grad():
        expected = plain_logprobs(model, batch_of(samples))
    for row, values in zip(by_start, expected.tolist(), strict=True):
        assert row == pytest.approx(values[: len(row)], abs=2e-5)
    assert learner.step(rows)["kl"] > 0


class FullDevice:
    """A model's forward that fails as a full device does, for more tokens at once than it has room."""

    def __init__(self, model: Any, room: int) -> None:
        backbone = model.get_base_model().model
        self._forward, self._room, self.tokens, self.failures = backbone.forward, room, [], 0
        backbone.forward = self

    def __call__(self, input_ids: Any, **more: Any) -> Any:
        if input_ids.numel() > self._room:
            self.failures += 1
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        self.tokens.append(input_ids.numel())
        return self._forward(input_ids=input_ids, **more)


def test_a_full_device_halves_the_pieces_and_keeps_the_batch(fresh: Callable[..., Any]) -> None:
    rows = make_rows(fresh(std=0.2), 12)
    plain = Learner(fresh(std=0.2), LearnerSettings(**PLAIN), **QUIET)
    whole = plain.step(rows)
    said: list[str] = []
    learner = Learner(fresh(std=0.2), LearnerSettings(**PLAIN, piece_tokens=400), log=said.append)
    device = FullDevice(learner.model, 60)
    healed = learner.step(rows)
    assert device.failures == len(said) == learner.pieces.halvings >= 2
    assert healed["rows"] == 12 and healed["tokens"] == whole["tokens"]
    assert healed["loss"] == pytest.approx(whole["loss"], abs=1e-6)
    for name, p in learner.trained.items():
        torch.testing.assert_close(p, plain.trained[name], atol=1e-6, rtol=1e-4)
    failures = device.failures
    learner.step(rows, fresh=False)
    assert device.failures == failures  # what fits is remembered


def test_a_device_too_small_for_a_row_is_an_error(fresh: Callable[..., Any]) -> None:
    learner = Learner(fresh(), LearnerSettings(**PLAIN), **QUIET)
    rows = make_rows(learner.model, 3)
    FullDevice(learner.model, 3)
    with pytest.raises(TrainingError, match=r"with one row of .* gradient checkpointing"):
        learner.step(rows)
    assert learner.steps == 0


def test_another_error_of_torch_is_not_healed(fresh: Callable[..., Any]) -> None:
    learner = Learner(fresh(), LearnerSettings(**PLAIN), **QUIET)
    rows = make_rows(learner.model, 3)

    def broken(**more: Any) -> Any:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    learner.model.get_base_model().model.forward = broken
    with pytest.raises(RuntimeError, match="mat1"):
        learner.step(rows)
    assert learner.pieces.halvings == 0


def gated(model: Any, **more: Any) -> Learner:
    return Learner(model, LearnerSettings(**PLAIN, **more), gate=Gate("float32", threshold=0.002), **QUIET)


def test_samples_of_the_same_weights_pass_the_gate(fresh: Callable[..., Any]) -> None:
    model = fresh(std=0.2)
    numbers = gated(model).step(make_rows(model, 5))
    assert numbers["drift/mean"] < 1e-4 and abs(numbers["drift/kl"]) < 1e-4


def test_samples_of_the_bare_base_stop_the_run_before_an_update(fresh: Callable[..., Any]) -> None:
    model = fresh(std=0.2)
    samples = make_samples(model, 5)
    with torch.no_grad(), model.disable_adapter():
        values = plain_logprobs(model, batch_of(samples)).tolist()
    rows = [
        Row(make_sample(s.prompt_ids, s.token_ids, v[: len(s.token_ids)]), 1.0)
        for s, v in zip(samples, values, strict=True)
    ]
    learner = gated(model)
    before = weights(learner)
    with pytest.raises(OffPolicyError, match="serves the bare base"):
        learner.step(rows)
    assert all((before[name] == p).all() for name, p in learner.trained.items()) and learner.steps == 0


def test_log_probabilities_without_the_temperature_are_named(fresh: Callable[..., Any]) -> None:
    model = fresh(std=0.2)
    with pytest.raises(OffPolicyError, match="leave the temperature out"):
        gated(model, temperature=0.7).step(make_rows(model, 5))


def test_dropout_is_named(fresh: Callable[..., Any]) -> None:
    model = fresh(std=0.2)
    rows = make_rows(model, 5)
    for name, module in model.named_modules():
        if name.endswith("lora_dropout"):
            module["default"] = torch.nn.Dropout(0.5)
    with pytest.raises(OffPolicyError, match="lora_dropout=0"):
        gated(model).step(rows)


def test_parts_are_timed(fresh: Callable[..., Any]) -> None:
    model = fresh(std=0.2)
    learner = Learner(model, LearnerSettings(**PLAIN), **QUIET)
    learner.step(make_rows(model, 4, kl=0.1))
    parts = learner.parts.take()
    assert set(parts) == {Part.FORWARD_BACKWARD, Part.LOGPROBS, Part.OPTIMISER}
    assert all(seconds > 0 for seconds in parts.values())


def test_an_infinite_gradient_stops(fresh: Callable[..., Any]) -> None:
    model = fresh()
    learner = Learner(model, LearnerSettings(**PLAIN), **QUIET)
    rows = [Row(s, math.inf) for s in make_samples(model, 2)]
    before = weights(learner)
    with pytest.raises(TrainingError, match="gradient is"):
        learner.step(rows)
    assert all((before[name] == p).all() for name, p in learner.trained.items())


def test_the_truncated_correction_weighs_by_the_capped_ratio(fresh: Callable[..., Any]) -> None:
    model = fresh(std=0.2)
    one = make_samples(model, 1)[0]
    off = make_sample(one.prompt_ids, one.token_ids, [v - 2.0 for v in one.logprobs])
    plain = gradient(model, [Row(one, 1.0)], LossSettings(correction="none"))
    capped = gradient(model, [Row(off, 1.0)], LossSettings(correction="truncated", truncation=3.0))
    for name in plain:  # e² = 7.4 is capped at 3
        torch.testing.assert_close(capped[name], 3.0 * plain[name], atol=1e-6, rtol=1e-3)


def test_wrong_settings_are_refused(fresh: Callable[..., Any]) -> None:
    with pytest.raises(TrainingError, match="set max_tokens"):
        LossSettings(aggregation="dr_grpo")
    with pytest.raises(TrainingError, match="total_steps"):
        Learner(fresh(), LearnerSettings(scheduler="cosine"))
    with pytest.raises(TrainingError, match="no trainable"):
        Learner(torch.nn.Linear(2, 2).requires_grad_(False), LearnerSettings())
    with pytest.raises(TrainingError, match="2 advantages for 1 tokens"):
        Row(make_sample((1,), (2,), (-1.0,)), (1.0, 2.0)).advantages()
