"""SMART's commands from the first to the last, as a user types them: a scripted model, real training and merging.

Wrong if a step needs another than the original's order, if a checkpoint under record/ is no adapter that smart-merge
takes, or if the merged model is not one that smart-sample and smart-evaluate can use.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2400)]
ROOT = Path(__file__).resolve().parents[2]


def reasoner(*arguments: object, home: Path, status: int = 0) -> Any:
    """What the command printed, as JSON; of a failure, its last line."""
    env = {**os.environ, "REASONER_HOME": str(home), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "flows.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=home.parent, timeout=1200)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout) if status == 0 else done.stderr.strip().splitlines()[-1]


def test_the_commands_of_the_original_in_their_order(tmp_path: Path) -> None:
    model, home, results = make_model(tmp_path / "model"), tmp_path / "home", tmp_path / "results"
    words = [
        "--config-name", "smart-demo", "engine=scripted", "engine.options.script=tests.support.solver:solve",
        "data.pool.word_problems.limit=120", "train.precision=fp32", "train.max_length=512", "train.lr=1e-2",
        "train.save_steps=4", "train.eval_steps=4", "evaluation.second_turn=every", "evaluation.each_strategy=last",
    ]  # fmt: skip
    for strategy in ("cot", "sub", "pot"):
        for part in (1, 4):
            assert reasoner("smart-infer", model, results, strategy, part, *words, home=home)["asked"] > 0
    assert "best_single" in reasoner("smart-analyse", results, home=home)
    assert reasoner("smart-records", 1, "--dir", results, home=home)["train"]["counts"]["records"] > 16
    trained = reasoner(
        "smart-train", "--dir", results, "--per_device_train_batch_size", 4, "--gradient_accumulation_steps", 2,
        "--record", tmp_path / "record", home=home,
    )  # fmt: skip
    saved = json.loads((results / "epoch1" / "train.json").read_text())
    assert (saved["batch_size"], saved["grad_accum"]) == (4, 2)
    assert (results / "epoch1" / "code.zip").is_file() and (results / "epoch1" / "config.json").is_file()

    record = Path(trained["record"])
    assert record.parent.parent == tmp_path / "record"
    assert {"config.json", "train.json", "code.json", "code.zip"} <= {p.name for p in record.iterdir()}
    checkpoints = sorted(record.glob("checkpoint-*"))
    assert len(checkpoints) >= 2 and f"checkpoint-{trained['training']['training']['steps']}" in {
        p.name for p in checkpoints
    }
    merged = tmp_path / "zzz"
    flags = ["--adapter_model_name", checkpoints[0], "--base_model_name", model, "--output_name", merged]
    assert reasoner("smart-merge", *flags, home=home)["parity"]["prompts"] == 8
    assert "not empty" in reasoner("smart-merge", *flags, home=home, status=2)
    other = make_model(tmp_path / "other", seed=8)
    wrong = [
        "--adapter_model_name",
        checkpoints[0],
        "--base_model_name",
        other,
        "--output_name",
        tmp_path / "y",
    ]
    assert "give its own base" in reasoner("smart-merge", *wrong, home=home, status=1)

    assert reasoner("smart-evaluate", "held-out", "--dir", results, home=home)["label"] == "epoch 1"
    zzz = reasoner("smart-evaluate", "held-out", "--dir", results, "--model", merged, home=home)
    assert zzz["label"] == str(merged) and {"correction", "turn2", "forced", "own_regret"} <= set(zzz)
    assert reasoner("smart-sample", "--dir", results, "--model", merged, home=home)["turn1"]["attempts"] > 0
    assert reasoner("smart-records", 2, "--dir", results, home=home)["train"]["counts"]["turn1_samples"] > 0
