"""A merge counts only if the merged model says what base and adapter said, and not what the base said."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from reasoner.config.smart import LoraConfig
from reasoner.errors import ModelError, TrainingError, UsageError
from reasoner.ids import file_hash
from reasoner.training import adapter, merge, parity, sft
from reasoner.training.specs import MergeSpec
from tests.support import tiny_training as tiny


@pytest.fixture(scope="module")
def trained(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an adapter that moves the base visibly. Read only."""
    room = tmp_path_factory.mktemp("trained")
    spec = tiny.make_spec(
        base, room, tiny.make_examples(8), epochs=15, lr=2e-2, lora=LoraConfig(r=8), base_fingerprint="f" * 64
    )
    sft.train(spec, lambda **report: None, lambda line: None)
    return spec.output


def merge_spec(base: Path, trained: Path, room: Path, **fields: Any) -> MergeSpec:
    values: dict[str, Any] = {
        "base": base,
        "base_name": "tiny-llama",
        "adapter": trained,
        "output": room / "merged",
        "work": room / "work",
        "prompts": tuple(row.prompt for row in tiny.make_examples(6, seed=3)),
        "device": "cpu",
        "max_tokens": 12,
    }
    return MergeSpec(**{**values, **fields})


def run(spec: MergeSpec) -> dict[str, Any]:
    merge.merge(spec, lambda line: None)
    found: dict[str, Any] = json.loads((spec.work / "metrics.json").read_text())
    return found


def changed_copy(trained: Path, room: Path, change: Any) -> Path:
    """A copy of the adapter with other tensors."""
    folder = room / "changed"
    folder.mkdir()
    for path in trained.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    save_file(
        change(load_file(trained / adapter.WEIGHTS)), folder / adapter.WEIGHTS, metadata={"format": "pt"}
    )
    return folder


def test_an_honest_merge_passes_and_is_reported(base: Path, trained: Path, tmp_path: Path) -> None:
    spec = merge_spec(base, trained, tmp_path)
    metrics = run(spec)
    assert metrics["prompts"] == 6 and metrics["positions"] > 6
    assert metrics["merged_float32"]["max_difference"] < 1e-3
    assert metrics["merged_float32"]["same_token"] == 1.0
    assert 0 < metrics["saved"]["max_difference"] < metrics["adapter_moves_logits_by"]
    assert metrics["saved"]["same_token"] >= 0.95
    assert metrics["largest_weight_change"] > 0.01
    names = {p.name for p in spec.output.iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json", "merge.json"} <= names
    assert not [n for n in names if n.endswith((".bin", ".pt", ".pkl"))]
    for path in spec.output.iterdir():
        assert str(tmp_path).encode() not in path.read_bytes(), path.name
        assert str(base).encode() not in path.read_bytes(), path.name


def test_the_saved_model_is_base_plus_adapter(base: Path, trained: Path, tmp_path: Path) -> None:
    """Checked without PEFT: W + (alpha / r) B A, rounded once to bfloat16; other weights as they were."""
    spec = merge_spec(base, trained, tmp_path)
    run(spec)
    before, after = load_file(base / "model.safetensors"), load_file(spec.output / "model.safetensors")
    lora = load_file(trained / adapter.WEIGHTS)
    assert set(before) == set(after)
    touched = 0
    for name, weight in before.items():
        assert after[name].dtype == torch.bfloat16
        stem = "base_model.model." + name.removesuffix(".weight")
        if f"{stem}.lora_A.weight" in lora:
            delta = lora[f"{stem}.lora_B.weight"] @ lora[f"{stem}.lora_A.weight"] * (32 / 8)
            torch.testing.assert_close(after[name].float(), weight.float() + delta, rtol=2**-8, atol=1e-6)
            assert not torch.equal(after[name], weight)
            touched += 1
        else:
            assert torch.equal(after[name], weight), name
    assert touched == 14


def test_equal_inputs_give_equal_bytes(base: Path, trained: Path, tmp_path: Path) -> None:
    first, second = (merge_spec(base, trained, tmp_path / name) for name in ("a", "b"))
    run(first)
    run(second)
    for path in first.output.iterdir():
        assert file_hash(path) == file_hash(second.output / path.name), path.name


def test_the_merged_model_keeps_its_chat_template_and_end(base: Path, trained: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    spec = merge_spec(base, trained, tmp_path)
    run(spec)
    tokenizer = AutoTokenizer.from_pretrained(spec.output)
    model = AutoModelForCausalLM.from_pretrained(spec.output)
    assert tokenizer.chat_template == tiny.TEMPLATE and tokenizer.eos_token == tiny.END
    assert model.dtype == torch.bfloat16 and model.generation_config.eos_token_id == 2


def test_an_adapter_of_zeros_is_refused(base: Path, trained: Path, tmp_path: Path) -> None:
    zeros = changed_copy(trained, tmp_path, lambda t: {k: torch.zeros_like(v) for k, v in t.items()})
    spec = merge_spec(base, zeros, tmp_path)
    with pytest.raises(TrainingError, match="Merged equals the base"):
        run(spec)
    assert list(spec.output.iterdir()) == []


def test_an_adapter_that_rounding_swallows_is_refused(base: Path, trained: Path, tmp_path: Path) -> None:
    """In float32 it changes the logits, in bfloat16 weights nothing is left of it."""
    faint = changed_copy(
        trained, tmp_path, lambda t: {k: v * (1e-7 if "lora_B" in k else 1.0) for k, v in t.items()}
    )
    with pytest.raises(TrainingError, match=r"changes a weight by at most 0 in bfloat16"):
        run(merge_spec(base, faint, tmp_path))


def test_a_wrong_merge_is_found(
    base: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One layer of fourteen merged with a scale that is 5 % off."""
    honest = merge.merged_weights

    def wrong(model: Any, spec: MergeSpec) -> Any:
        layer = model.base_model.model.model.layers[1].mlp.down_proj
        layer.scaling["default"] *= 1.05
        return honest(model, spec)

    monkeypatch.setattr(merge, "merged_weights", wrong)
    spec = merge_spec(base, trained, tmp_path)
    with pytest.raises(TrainingError, match=r"The merge is wrong.*limit 0\.05"):
        run(spec)
    assert list(spec.output.iterdir()) == []


@pytest.mark.parametrize("instead", ["base", "noise"])
def test_another_model_on_the_disk_is_found(
    base: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instead: str
) -> None:
    """The last comparison reads what was saved, not what was in memory."""
    honest = merge.save

    def save(model: Any, tokenizer: Any, spec: MergeSpec) -> None:
        honest(model, tokenizer, spec)
        tensors = load_file((base if instead == "base" else spec.output) / "model.safetensors")
        if instead == "noise":
            torch.manual_seed(0)
            tensors = {k: v + (0.1 * torch.randn(v.shape)).to(v.dtype) for k, v in tensors.items()}
        save_file(tensors, spec.output / "model.safetensors", metadata={"format": "pt"})

    monkeypatch.setattr(merge, "save", save)
    spec = merge_spec(base, trained, tmp_path)
    with pytest.raises(TrainingError, match=r"chooses the same token.*limit 95%"):
        run(spec)
    assert list(spec.output.iterdir()) == []


def test_an_adapter_of_another_base_is_refused(base: Path, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="trained on 'tiny-llama', not on 'other'"):
        run(merge_spec(base, trained, tmp_path, base_name="other"))
    with pytest.raises(ModelError, match="other weights of 'tiny-llama'"):
        run(merge_spec(base, trained, tmp_path, base_fingerprint="e" * 64))
    run(merge_spec(base, trained, tmp_path, base_fingerprint="f" * 64))


def test_an_adapter_whose_tensors_do_not_fit_is_refused(base: Path, trained: Path, tmp_path: Path) -> None:
    shallow = tiny.make_model(tmp_path / "shallow", layers=1)
    with pytest.raises(ModelError, match=r"14 of its tensors have no place there and 0 are missing"):
        run(merge_spec(shallow, trained, tmp_path))
    deep = tiny.make_model(tmp_path / "deep", layers=3)
    with pytest.raises(ModelError, match=r"0 of its tensors have no place there and 14 are missing"):
        run(merge_spec(deep, trained, tmp_path))
    narrow = changed_copy(trained, tmp_path, lambda t: {k: v[:, :-1].contiguous() for k, v in t.items()})
    with pytest.raises(ModelError, match="does not fit tiny-llama"):
        run(merge_spec(base, narrow, tmp_path))


def test_nan_in_an_adapter_is_an_error(base: Path, trained: Path, tmp_path: Path) -> None:
    def spoil(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        name = next(k for k in tensors if "lora_B" in k)
        tensors[name][0, 0] = float("nan")
        return tensors

    with pytest.raises(TrainingError, match=r"not finite|cannot be merged"):
        run(merge_spec(base, changed_copy(trained, tmp_path, spoil), tmp_path))


def test_what_is_not_an_adapter_is_refused(base: Path, trained: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"adapter_config\.json is missing"):
        run(merge_spec(base, base, tmp_path))
    other = changed_copy(trained, tmp_path, lambda t: t)
    config = json.loads((other / adapter.CONFIG).read_text())
    (other / adapter.CONFIG).write_text(json.dumps({**config, "peft_type": "IA3"}))
    with pytest.raises(ModelError, match="holds a IA3 adapter"):
        run(merge_spec(base, other, tmp_path))
    (other / adapter.WEIGHTS).unlink()
    (other / "adapter_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match=r"adapter_model\.safetensors is missing"):
        run(merge_spec(base, other, tmp_path))


def test_usage(base: Path, trained: Path, tmp_path: Path) -> None:
    spec = merge_spec(base, trained, tmp_path)
    with pytest.raises(UsageError, match="needs 5 prompts; 4 are given"):
        run(replace(spec, prompts=spec.prompts[:4]))
    spec.output.mkdir(parents=True)
    (spec.output / "mine").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        run(spec)
    assert (spec.output / "mine").exists()


def test_compare_counts_differences_and_tokens() -> None:
    a = torch.tensor([[0.0, 1.0], [2.0, 1.0]])
    found = parity.compare([a, a], [a, a + torch.tensor([[0.0, 0.5], [0.0, 2.0]])])
    assert found == parity.Comparison(4, 2.0, 2.5 / 8, 0.75)
    with pytest.raises(TrainingError, match="not finite"):
        parity.compare([a], [a * float("inf")])
