"""A training shown in W&B, by TRL's own integration in the child, offline: same bytes, every step's loss, no key."""

import json
from pathlib import Path
from typing import Any

import pytest

from reasoner.tracking import Tracking
from reasoner.training.launch import run_sft
from tests.support import tiny_training as tiny
from tests.support import wandb_files
from tests.unit.training.test_sft import hashes

KEY = "0123456789abcdef0123456789abcdef01234567"


def test_a_tracked_training_is_the_same_training(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_MODE", "offline")
    validation = tiny.write_examples(tmp_path / "v.jsonl", tiny.make_examples(4, seed=9))
    settings: dict[str, Any] = {"epochs": 2, "eval_steps": 2, "validation_rows": validation, "threads": 1}
    plain = tiny.make_spec(base, tmp_path / "plain", tiny.make_examples(8), **settings)
    shown = tmp_path / "run"
    asked = Tracking("mine", "smart-1", shown).run("train epoch 1", "train", "abc123")
    spec = tiny.make_spec(base, tmp_path / "shown", tiny.make_examples(8), tracking=asked, **settings)
    run_sft(plain, tmp_path / "plain.log")
    assert not list(tmp_path.rglob("*.wandb")), "off unless asked for"
    losses: list[float] = []
    run_sft(spec, tmp_path / "log", lambda facts: losses.append(facts["loss"]))
    assert hashes(spec.output) == hashes(plain.output)

    logged = wandb_files.history(shown)
    assert [row["train/loss"] for row in logged if "train/loss" in row] == pytest.approx(losses)
    assert [row["train/global_step"] for row in logged if "eval/loss" in row] == [2, 4]
    [run] = wandb_files.runs(shown)
    assert (run.project, run.run_group, run.run_id, run.display_name) == (
        "mine", "smart-1", "abc123", "train epoch 1",
    )  # fmt: skip
    assert "W&B: mine/smart-1, train epoch 1, offline" in (tmp_path / "log").read_text()
    assert "tracking" in json.loads((spec.work / "sft.json").read_text())
    for path in tmp_path.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            assert KEY.encode() not in content, path
            assert path.suffix != ".safetensors" or "wandb" not in path.parts, "weights are not uploaded"
