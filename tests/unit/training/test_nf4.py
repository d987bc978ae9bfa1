"""A base held in 4 bits trains a float32 adapter that serves the full base, and weights are counted without loading."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from reasoner.errors import ModelError
from reasoner.training import merge, runtime
from reasoner.training.specs import MergeSpec
from tests.support import tiny_training as tiny
from tests.unit.training.test_sft import Run, hashes


def test_an_adapter_is_learnt_on_a_base_in_4_bits(base: Path, tmp_path: Path) -> None:
    before = hashes(base)
    examples = tiny.make_examples(8)
    settings = {"epochs": 12, "lr": 1e-2}
    full = Run(tiny.make_spec(base, tmp_path / "full", examples, **settings))
    small = Run(tiny.make_spec(base, tmp_path / "small", examples, nf4_above_gib=0, **settings))
    assert full.record["quantised"] is None and small.record["quantised"] == "nf4"
    assert small.said("the base in 4 bits") and not full.said("the base in 4 bits")
    assert {tensor.dtype for tensor in small.weights.values()} == {torch.float32}
    assert set(small.weights) == set(full.weights)
    assert small.losses[0] != full.losses[0], "the base was not rounded"
    assert small.losses[0] == pytest.approx(full.losses[0], rel=0.1)
    assert small.losses[-1] < 0.7 * small.losses[0]
    assert hashes(base) == before

    spec = MergeSpec(
        base=base, base_name="tiny-llama", adapter=small.spec.output, output=tmp_path / "merged",
        work=tmp_path / "merge", prompts=tuple(row.prompt for row in examples[:5]), device="cpu",
    )  # fmt: skip
    merge.merge(spec, lambda line: None)
    merged = load_file(tmp_path / "merged" / "model.safetensors")
    plain = load_file(base / "model.safetensors")
    assert set(merged) == set(plain) and {t.dtype for t in merged.values()} == {torch.bfloat16}


def test_a_base_below_the_limit_stays_whole(base: Path, tmp_path: Path) -> None:
    run = Run(tiny.make_spec(base, tmp_path, tiny.make_examples(4), nf4_above_gib=1))
    assert run.record["quantised"] is None


def test_the_small_steps_of_an_adapter_on_4_bits_are_kept(base: Path, tmp_path: Path) -> None:
    """In bfloat16, as TRL would leave it, the same steps would round away."""
    run = Run(tiny.make_spec(base, tmp_path, tiny.make_examples(8), nf4_above_gib=0, epochs=2))
    rounded = [torch.equal(t, t.bfloat16().float()) for t in run.weights.values()]
    assert not any(rounded)


def test_weights_are_counted_from_their_headers(base: Path, tmp_path: Path) -> None:
    tensors = load_file(base / "model.safetensors")
    assert runtime.count_weights(base) == sum(t.numel() for t in tensors.values())
    (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0broken!!")
    with pytest.raises(ModelError, match="not a safetensors file"):
        runtime.count_weights(tmp_path)


def test_a_merge_that_does_not_fit_the_card_is_made_on_the_cpu(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    spec = MergeSpec(base=base, base_name="b", adapter=tmp_path, output=tmp_path, work=tmp_path, prompts=())
    needed = 4 * runtime.count_weights(base)
    monkeypatch.setattr(runtime, "pick_device", lambda device: "cuda")
    lines: list[str] = []
    for free, device in ((needed, "cpu"), (2 * needed, "cuda")):
        monkeypatch.setattr(runtime, "free_memory", lambda device, free=free: free)
        assert merge.merging_device(spec, lines.append) == device
    assert len(lines) == 1 and "merging on the CPU" in lines[0]
    monkeypatch.setattr(runtime, "free_memory", lambda device: needed)
    assert merge.merging_device(replace(spec, device="cuda"), lines.append) == "cuda", "as was asked for"
