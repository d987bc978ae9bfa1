"""Packed records do not see one another, a machine without a kernel says so, and padded batches are of like length.

The kernels need CUDA (tests/gpu). What surrounds them is tested here with one that computes the same on the CPU: each
record of a row attended to alone.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from reasoner.errors import InfrastructureError, TrainingError
from reasoner.preflight.mask import IGNORED, check_batches
from reasoner.training import packing
from reasoner.training.examples import Encoder
from reasoner.training.ordering import GroupedSampler, grouped_order
from tests.support import tiny_training as tiny
from tests.unit.training.test_sft import Run

RECORD_BY_RECORD = "record_by_record"
LLAMA = {"num_attention_heads": 2, "hidden_size": 64}


def record_by_record(q: Any, k: Any, v: Any, starts: Any, longest: int, scale: float, window: Any) -> Any:
    """The contract of `packing.torch_kernel`, on any device."""
    assert longest == int(starts.diff().max()) and window is None
    q, k, v = (x.transpose(0, 1) for x in (q, k, v))
    parts = [
        scaled_dot_product_attention(
            q[:, a:b], k[:, a:b], v[:, a:b], is_causal=True, scale=scale, enable_gqa=True
        )
        for a, b in itertools.pairwise(starts.tolist())
    ]
    return torch.cat(parts, dim=1).transpose(0, 1)


def whole_row(q: Any, k: Any, v: Any, starts: Any, longest: int, scale: float, window: Any) -> Any:
    """A kernel that forgets where records begin."""
    ends = torch.tensor([0, q.shape[0]], dtype=torch.int32)
    return record_by_record(q, k, v, ends, q.shape[0], scale, window)


def uneven(count: int, seed: int = 0) -> list[Any]:
    return tiny.make_examples(count, seed, uneven=True)


@pytest.fixture
def packed_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    packing.register(RECORD_BY_RECORD, record_by_record)
    attention = packing.Attention(RECORD_BY_RECORD, packed=True)
    monkeypatch.setattr(packing, "choose", lambda *given: attention)


def test_a_kernel_that_keeps_records_apart_passes() -> None:
    packing.register(RECORD_BY_RECORD, record_by_record)
    assert packing.leak(RECORD_BY_RECORD, "cpu", 32) is None


def test_a_kernel_that_does_not_is_found() -> None:
    packing.register("whole_row", whole_row)
    assert packing.leak("whole_row", "cpu", 32) == "packed records do not attend as they do alone"


def test_torchs_own_kernel_is_not_on_the_cpu() -> None:
    packing.register("torch_on_cpu", packing.torch_kernel())
    fault = packing.leak("torch_on_cpu", "cpu", 32)
    assert fault is not None and "_flash_attention_forward" in fault


def test_a_padded_batch_is_refused() -> None:
    packing.register(RECORD_BY_RECORD, record_by_record)
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
    )  # fmt: skip
    config._attn_implementation = RECORD_BY_RECORD
    model: Any = LlamaForCausalLM(config)
    with pytest.raises(TrainingError, match="packed rows only"):
        model(input_ids=torch.tensor([[3, 4], [5, 0]]), attention_mask=torch.tensor([[1, 1], [1, 0]]))


@pytest.mark.parametrize("release", ["2.10", "2.11", "2.13"])
def test_every_release_of_torchs_function_is_called_rightly(
    release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch.nn.attention import varlen

    def attend(q: Any, k: Any, v: Any, starts: Any, longest: int, scale: float | None) -> Any:
        return record_by_record(q, k, v, starts, longest, scale or q.shape[-1] ** -0.5, None)

    def oldest(query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int,
               is_causal: bool = False) -> Any:  # fmt: skip
        assert is_causal and key.shape == query.shape
        return attend(query, key, value, cu_seq_q, max_q, None)

    def middle(query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int, *,
               scale: float | None = None, window_size: Any = (-1, -1)) -> Any:  # fmt: skip
        assert window_size == (-1, 0) and key.shape == query.shape
        return attend(query, key, value, cu_seq_q, max_q, scale)

    def newest(query: Any, key: Any, value: Any, cu_seq_q: Any, cu_seq_k: Any, max_q: int, max_k: int, *,
               scale: float | None = None, window_size: Any = (-1, -1), enable_gqa: bool = False) -> Any:  # fmt: skip
        assert window_size == (-1, 0) and enable_gqa
        return attend(query, key, value, cu_seq_q, max_q, scale)

    monkeypatch.setattr(varlen, "varlen_attn", {"2.10": oldest, "2.11": middle, "2.13": newest}[release])
    torch.manual_seed(0)
    q, k, v = torch.randn(9, 4, 16), torch.randn(9, 2, 16), torch.randn(9, 2, 16)
    starts = torch.tensor([0, 4, 9], dtype=torch.int32)
    result = packing.torch_kernel()(q, k, v, starts, 5, 0.3, None)
    torch.testing.assert_close(result, record_by_record(q, k, v, starts, 5, 0.3, None))


def test_packing_is_refused_where_nothing_can_do_it(base: Path, tmp_path: Path) -> None:
    spec = tiny.make_spec(base, tmp_path, tiny.make_examples(4), packing="on")
    with pytest.raises(InfrastructureError) as refusal:
        Run(spec)
    message = str(refusal.value)
    for missing in ("train.packing=on", "no CUDA device", "flash-attn", "train.precision is fp32"):
        assert missing in message
    assert "\n" not in message and not (spec.output / "adapter_model.safetensors").exists()


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ({"attn_logit_softcapping": 50.0}, "caps its attention scores"),
        ({"attention_dropout": 0.1}, "drops attention weights"),
        ({"layer_types": ["linear_attention", "full_attention"]}, "layers other than attention"),
        ({"head_dim": 512}, "heads of 512"),
    ],
)
def test_models_of_another_kind_are_padded(base: dict[str, Any], words: str) -> None:
    usual = packing.obstacles("cpu", "bf16", LLAMA)
    [more] = set(packing.obstacles("cpu", "bf16", {**LLAMA, **base})) - set(usual)
    assert words in more
    lines: list[str] = []
    chosen = packing.choose("auto", "cpu", "bf16", {**LLAMA, **base}, lines.append)
    assert chosen == packing.Attention("default", packed=False)
    assert words in lines[0]


def test_a_kernel_that_fails_its_check_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    packing.register("whole_row", whole_row)
    monkeypatch.setattr(packing, "obstacles", lambda *given: [])
    monkeypatch.setattr(packing, "kernel_name", lambda: "whole_row")
    lines: list[str] = []
    assert not packing.choose("auto", "cpu", "bf16", LLAMA, lines.append).packed
    assert "whole_row failed its check" in lines[0]
    with pytest.raises(InfrastructureError, match="whole_row failed its check"):
        packing.choose("on", "cpu", "bf16", LLAMA, lines.append)


def test_a_packed_training_has_the_losses_of_a_padded_one(
    base: Path, tmp_path: Path, packed_on_the_cpu: None
) -> None:
    rows, settings = uneven(20), {"batch_size": 4, "grad_accum": 2, "epochs": 2, "eval_steps": 2}
    validation = tiny.write_examples(tmp_path / "v.jsonl", uneven(5, seed=3))
    packed = Run(tiny.make_spec(base, tmp_path / "a", rows, validation_rows=validation, **settings))
    with pytest.MonkeyPatch.context() as undone:
        undone.setattr(packing, "choose", lambda *given: packing.Attention("default", packed=False))
        padded = Run(
            tiny.make_spec(base, tmp_path / "b", rows, validation_rows=validation, packing="off", **settings)
        )
    assert packed.losses == pytest.approx(padded.losses, rel=1e-4)
    for name, tensor in padded.weights.items():
        torch.testing.assert_close(packed.weights[name], tensor, rtol=1e-2, atol=1e-4)
    for a, b in zip(packed.record["validation_losses"], padded.record["validation_losses"], strict=True):
        assert a["loss"] == pytest.approx(b["loss"], rel=1e-3)
    assert packed.record["packing"] == {"packed": True, "attention": RECORD_BY_RECORD, "order": "random"}
    assert padded.record["packing"] == {"packed": False, "attention": "default", "order": "random"}


def test_packed_gradient_checkpointing_changes_nothing(
    base: Path, tmp_path: Path, packed_on_the_cpu: None
) -> None:
    rows = uneven(8)
    plain = Run(tiny.make_spec(base, tmp_path / "a", rows))
    saving = Run(tiny.make_spec(base, tmp_path / "b", rows, gradient_checkpointing=True))
    assert saving.losses == pytest.approx(plain.losses, rel=1e-6)


def packed_batch(change: Any = None) -> tuple[Any, Any, Any, Encoder]:
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    tokenizer = tiny.make_tokenizer()
    encoder = Encoder(tokenizer, tiny.END, add_special_tokens=False)
    encoded = encoder.encode_all(uneven(5), 512).kept
    rows = [{"input_ids": list(e.input_ids), "labels": e.labels} for e in encoded]
    plain = DataCollatorForLanguageModeling(pad_token_id=tokenizer.pad_token_id, padding_free=True)

    def collate(chosen: Any) -> Any:
        batch = plain(chosen)
        if change is not None:
            change(batch)
        return batch

    return encoded, rows, collate, encoder


def _all_inside(batch: Any) -> None:
    batch["labels"] = batch["input_ids"].clone()


def _positions_go_on(batch: Any) -> None:
    batch["position_ids"] = torch.arange(batch["input_ids"].shape[1])[None]


def _record_cut_elsewhere(batch: Any) -> None:
    batch["cu_seq_lens_q"] = batch["cu_seq_lens_q"].clone()
    if len(batch["cu_seq_lens_q"]) > 2:
        batch["cu_seq_lens_q"][1] += 1


def _next_prompt_inside(batch: Any) -> None:
    """The last token of a record would be trained to be followed by the next record."""
    first = batch["cu_seq_lens_q"][1]
    if first < batch["labels"].shape[1]:
        batch["labels"][0, first] = batch["input_ids"][0, first]


def test_packed_batches_are_proven_before_the_first_step() -> None:
    encoded, rows, collate, encoder = packed_batch()
    check_batches(encoded, rows, collate, encoder, batch_size=2)
    assert all(row["labels"][0] == IGNORED for row in rows)


@pytest.mark.parametrize(
    "change", [_all_inside, _positions_go_on, _record_cut_elsewhere, _next_prompt_inside]
)
def test_a_wrong_packed_batch_is_found(change: Any) -> None:
    encoded, rows, collate, encoder = packed_batch(change)
    with pytest.raises(TrainingError, match="Bad loss mask in record p"):
        check_batches(encoded, rows, collate, encoder, batch_size=2)


def test_a_lost_boundary_is_found() -> None:
    def join(batch: Any) -> None:
        batch["cu_seq_lens_q"] = batch["cu_seq_lens_q"][[0, -1]]

    encoded, rows, collate, encoder = packed_batch(join)
    with pytest.raises(TrainingError, match="A batch of 2 records holds 1"):
        check_batches(encoded, rows, collate, encoder, batch_size=2)


LENGTHS = st.lists(st.integers(1, 300), min_size=1, max_size=120)


@settings(max_examples=60, deadline=None)
@given(LENGTHS, st.integers(1, 16), st.integers(0, 5), st.integers(0, 3))
def test_an_order_has_every_record_once_and_is_made_anew(
    lengths: list[int], batch: int, seed: int, epoch: int
) -> None:
    order = grouped_order(lengths, batch, seed, epoch)
    assert sorted(order) == list(range(len(lengths)))
    assert lengths[order[0]] == max(lengths), "memory that does not suffice is found at the first step"
    torch.manual_seed(seed + 17)  # the global generator is neither read nor moved
    before = torch.get_rng_state()
    assert grouped_order(lengths, batch, seed, epoch) == order
    assert torch.equal(torch.get_rng_state(), before)


def test_orders_differ_by_epoch_and_seed_and_pad_less() -> None:
    lengths = [10 + 37 * i % 211 for i in range(200)]
    sampler = GroupedSampler(lengths, 8, seed=0)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first != grouped_order(lengths, 8, 1, 0)

    def padded(order: list[int]) -> int:
        return sum(8 * max(lengths[i] for i in order[at : at + 8]) for at in range(0, len(order), 8))

    assert padded(first) < 1.2 * sum(lengths) < 0.8 * padded(list(range(200)))


def test_no_length_has_a_place_of_its_own_in_an_epoch() -> None:
    """A short strategy's records must not be what each epoch ends with: the last is learnt best."""
    lengths = [90, 97, 76] * 64
    seeds = range(30)
    orders = [grouped_order(lengths, 8, seed, 0) for seed in seeds]
    ends = [lengths[i] == 76 for order in orders for i in order[-24:]]
    assert 0.2 < sum(ends) / len(ends) < 0.47, "a third of the records are short ones"
    alike = [len({lengths[i] for i in o[at : at + 8]}) == 1 for o in orders for at in range(0, 192, 8)]
    assert sum(alike) > 0.6 * len(alike), "batches are still of like length"


def test_a_padded_training_meets_its_records_in_that_order(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the effective batch is cut, and in every epoch."""
    from trl import SFTTrainer

    seen: list[list[int]] = []
    plain = SFTTrainer.training_step

    def step(self: Any, model: Any, inputs: Any, *rest: Any) -> Any:
        seen.append(inputs["attention_mask"].sum(1).tolist())
        return plain(self, model, inputs, *rest)

    monkeypatch.setattr(SFTTrainer, "training_step", step)
    rows = uneven(20)
    run = Run(tiny.make_spec(base, tmp_path, rows, batch_size=2, grad_accum=2, epochs=2))
    encoder = Encoder(tiny.make_tokenizer(), tiny.END, add_special_tokens=False)
    lengths = [len(encoder.encode(row).input_ids) for row in rows]
    wanted = [lengths[i] for epoch in (0, 1) for i in grouped_order(lengths, 4, 0, epoch)]
    assert list(itertools.chain(*seen)) == wanted
    assert run.record["packing"] == {"packed": False, "attention": "default", "order": "by length"}
    assert run.said("no packing (no CUDA device")
    assert json.loads((run.spec.output / "training.json").read_text())["train"]["packing"] == "auto"
