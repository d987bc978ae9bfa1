"""Adapters between trainer and engine: private, in bfloat16, elsewhere when memory is full, gone afterwards."""

import errno
import json
import shutil
import stat
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.adapters import check_adapter
from reasoner.errors import InfrastructureError, ModelError, UsageError
from reasoner.onpolicy import adapters
from reasoner.onpolicy.adapters import AdapterFolder
from reasoner.process.owner import owner_tag

Usage = namedtuple("Usage", "total used free")


def test_an_adapter_is_saved_in_bfloat16_as_peft_reads_it(
    fresh: Callable[..., Any], base: Path, tmp_path: Path
) -> None:
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    model = fresh(std=0.2)
    with AdapterFolder(tmp_path) as kept:
        folder = kept.write("policy", model, "default")
        assert check_adapter("x", folder, 4, enabled=True).rank == 4
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
        weights = load_file(folder / "adapter_model.safetensors")
        assert {w.dtype for w in weights.values()} == {torch.bfloat16}
        loader: Any = AutoModelForCausalLM
        again = PeftModel.from_pretrained(loader.from_pretrained(str(base), dtype=torch.float32), str(folder))
        ids = torch.arange(3, 40)[None]
        with torch.no_grad():
            torch.testing.assert_close(again(ids).logits, model(ids).logits, atol=0.1, rtol=0.05)
            assert (again(ids).logits - model.get_base_model()(ids).logits).abs().max() < 0.5
        assert kept.write("policy", model, "default") != folder and folder.is_dir()  # never overwritten
    assert list(tmp_path.iterdir()) == []


def test_each_policy_saves_its_own_weights(fresh: Callable[..., Any], tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model = fresh(names=("solver", "writer"), std=0.2)
    with AdapterFolder(tmp_path) as kept:
        one, two = (
            load_file(kept.write(name, model, name) / "adapter_model.safetensors")
            for name in ("solver", "writer")
        )
    assert one.keys() == two.keys()
    assert any((one[name] != two[name]).any() for name in one)


@pytest.mark.parametrize(
    ("more", "factor"),
    [
        ({}, 3.0),
        ({"use_rslora": True}, 6.0),
        ({"lora_alpha": 4}, 1.0),
        ({"alpha_pattern": {"q_proj": 20}}, None),
    ],
)
def test_an_engine_has_nothing_left_to_multiply(
    base: Path, tmp_path: Path, more: dict[str, Any], factor: float | None
) -> None:
    """What vLLM reads has a scaling of 1, and says what the trainer's adapter says."""
    import torch
    from peft import LoraConfig, PeftModel, get_peft_model
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM
    fields = {"r": 4, "lora_alpha": 12, "target_modules": ["q_proj", "down_proj"], "init_lora_weights": False}
    model = get_peft_model(
        loader.from_pretrained(base, dtype=torch.float32), LoraConfig(**{**fields, **more})
    )
    with AdapterFolder(tmp_path) as kept:
        folder = kept.write("policy", model, dtype="float32")
        config = json.loads((folder / "adapter_config.json").read_text())
        served = load_file(folder / "adapter_model.safetensors")
        again = PeftModel.from_pretrained(loader.from_pretrained(base, dtype=torch.float32), folder)
    if factor is None:
        assert config["lora_alpha"] == 12, "modules of several alphas stay as they are"
        factor = 1.0
    else:
        assert config["lora_alpha"] == config["r"] and not config["use_rslora"]
    own = adapters.adapter_tensors(model, "default", "keep")
    assert all(torch.allclose(served[n], w * (factor if "lora_B" in n else 1)) for n, w in own.items())
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        logits = model(ids).logits
        torch.testing.assert_close(again(ids).logits, logits, atol=1e-3, rtol=1e-3)
        with model.disable_adapter():
            assert (logits - model(ids).logits).abs().max() > 0.1, "a wrong factor would show"
    assert model.peft_config["default"].lora_alpha == more.get("lora_alpha", 12), "the trainer's is as it was"


def test_without_room_in_memory_the_next_folder_is_used(
    fresh: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir(), disk.mkdir()
    monkeypatch.setattr(adapters, "MEMORY", memory)
    monkeypatch.setattr(adapters.tempfile, "gettempdir", lambda: str(disk))
    model = fresh()
    with AdapterFolder() as kept:
        assert kept.write("a", model, "default").is_relative_to(memory)
        monkeypatch.setattr(
            adapters.shutil, "disk_usage", lambda path: Usage(0, 0, 100 if path == memory else 1 << 40)
        )
        assert kept.write("b", model, "default").is_relative_to(disk)
        monkeypatch.setattr(adapters.shutil, "disk_usage", lambda path: Usage(0, 0, 100))
        with pytest.raises(InfrastructureError, match="free some space"):
            kept.write("c", model, "default")
    assert list(memory.iterdir()) == list(disk.iterdir()) == []


def test_a_file_system_that_fills_up_while_writing_is_left(
    fresh: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir(), disk.mkdir()
    monkeypatch.setattr(adapters, "MEMORY", memory)
    monkeypatch.setattr(adapters.tempfile, "gettempdir", lambda: str(disk))
    write = AdapterFolder._write

    def full(target: Path, *rest: Any) -> None:
        if target.is_relative_to(memory):
            (target / "half").write_bytes(b"x")
            raise OSError(errno.ENOSPC, "No space left on device")
        write(target, *rest)

    monkeypatch.setattr(AdapterFolder, "_write", staticmethod(full))
    said: list[str] = []
    with AdapterFolder(log=said.append) as kept:
        assert kept.write("a", fresh(), "default").is_relative_to(disk)
        assert [p for p in memory.rglob("*") if p.is_file()] == []
    assert "full" in said[0]


def test_what_a_killed_trainer_left_is_removed_and_what_a_live_one_has_is_not(tmp_path: Path) -> None:
    tag = subprocess.run(
        [sys.executable, "-c", "from reasoner.process.owner import owner_tag; print(owner_tag())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    dead, alive = tmp_path / f"{adapters.PREFIX}{tag}+x", tmp_path / f"{adapters.PREFIX}{owner_tag()}+x"
    strange = tmp_path / f"{adapters.PREFIX}what"
    for folder in (dead, alive, strange):
        folder.mkdir()
    AdapterFolder(tmp_path).close()
    assert not dead.exists() and alive.exists() and strange.exists()


def test_what_an_engine_cannot_serve_is_refused(fresh: Callable[..., Any], tmp_path: Path) -> None:
    import torch

    model = fresh()
    with AdapterFolder(tmp_path) as kept:
        with pytest.raises(UsageError, match="no adapter 'other'; it has default"):
            kept.write("a", model, "other")
        with pytest.raises(ModelError, match="has no adapters"):
            kept.write("a", torch.nn.Linear(2, 2))
        model.peft_config["default"].use_dora = True
        with pytest.raises(ModelError, match="use_dora"):
            kept.write("a", model, "default")


def test_the_configuration_names_no_training_state(fresh: Callable[..., Any], tmp_path: Path) -> None:
    with AdapterFolder(tmp_path) as kept:
        folder = kept.write("a", fresh(), "default")
        config = json.loads((folder / "adapter_config.json").read_text())
        assert config["inference_mode"] is True and config["r"] == 4
        kept.remove(folder)
        kept.remove(folder)
        assert not folder.exists()
    assert shutil.disk_usage(tmp_path)


def test_weights_are_named_as_peft_saves_them(base: Path) -> None:
    """Of each of two adapters, with every kind of LoRA parameter that is served: linear, with bias, embedding."""
    import torch
    from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
    from transformers import AutoModelForCausalLM

    loader: Any = AutoModelForCausalLM
    everywhere = LoraConfig(
        r=2, target_modules=["q_proj", "down_proj", "embed_tokens"], init_lora_weights=False
    )
    biased = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_bias=True, init_lora_weights=False)
    made = get_peft_model(loader.from_pretrained(base), everywhere, "solver")
    made.add_adapter("default", biased)
    for name in ("solver", "default"):
        expected = get_peft_model_state_dict(made, adapter_name=name, save_embedding_layers=False)
        for dtype, kind in (("bfloat16", torch.bfloat16), ("keep", torch.float32)):
            found = adapters.adapter_tensors(made, name, dtype)
            assert found.keys() == expected.keys() and found
            assert all(torch.equal(found[key], expected[key].to(kind)) for key in expected)
