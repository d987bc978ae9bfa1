"""The original's two trainings in plain folders, on a tiny model.

Wrong if the output folder lacks a file that the original left, if a default is another one, if the loss falls
on a prompt, or if a forgotten step limit cuts the epochs short.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from reasoner.errors import DataError, UsageError
from reasoner.home import Home
from reasoner.methods.planner.training_args import TrainingArgs
from reasoner.problems.files import read_file
from reasoner.prompts import ChatRenderer
from reasoner.stages.planner_folder import (
    Beyond,
    SftArgs,
    grpo_config,
    sprint_examples,
    train_planner,
    train_sft_planner,
)
from tests.support.tiny_llama import make_model
from tests.unit.training.planner.planning import learnt_to_plan, problems

pytestmark = pytest.mark.timeout(600)
LEFT = {
    "adapter_config.json", "adapter_model.safetensors", "tokenizer_config.json", "tokenizer.json",
    "special_tokens_map.json", "training_config.json",
}  # fmt: skip


def sprint_rows(path: Path, count: int = 6) -> Path:
    """Rows of our own in the shape of the original's data set."""
    rows = [
        {
            "SystemPrompt": "Plan first." if i % 2 else "",
            "UserPrompt": f"Ann has {i} pens and buys 2 more. How many pens has she?",
            "ExpectedOutput": f"<Plan_p> 1. Count. 2. Add. </Plan_p> {i} + 2 = {i + 2}. The answer is {i + 2}.",
        }
        for i in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_train_sft_planner_runs_whole_epochs_on_the_outputs(tmp_path: Path) -> None:
    base = make_model(tmp_path / "base")
    args = SftArgs(
        str(base),
        str(sprint_rows(tmp_path / "rows.jsonl", 12)),
        str(tmp_path / "out"),
        batch_size=2,
        grad_accum=1,
        lr=1e-2,
    )
    done = train_sft_planner(args, Home(tmp_path / "home"), lambda facts: None)
    assert done["steps"] == 6 and done["records"]["kept"] == 12
    assert done["losses"][0]["loss"] > 0
    out = tmp_path / "out"
    assert LEFT - {"special_tokens_map.json", "training_config.json"} <= {p.name for p in out.iterdir()}
    assert list(out.glob("checkpoint-*"))
    training = json.loads((out / "training.json").read_text())
    assert training["train"]["lora"] == {**training["train"]["lora"], "r": 16, "alpha": 32}


def test_rows_become_chats(tmp_path: Path) -> None:
    table = read_file(sprint_rows(tmp_path / "rows.jsonl"))
    renderer = ChatRenderer(make_model(tmp_path / "base"))
    first, second, *_ = sprint_examples(table, renderer)
    assert first.prompt.startswith("<|im_start|>user\n") and "system\nPlan first." in second.prompt
    assert first.completion.startswith("<Plan_p>") and first.completion.endswith("<|im_end|>")
    assert "Plan_p" not in first.prompt


def test_other_columns_are_told(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"UserPrompt": "x", "Output": "y"}\n')
    with pytest.raises(DataError, match="no column SystemPrompt; it has UserPrompt, Output"):
        train_sft_planner(SftArgs(dataset=str(rows)), Home(tmp_path / "home"), lambda facts: None)


def test_the_originals_settings_arrive() -> None:
    found = grpo_config(TrainingArgs())
    assert (found.batch_size, found.grad_accum, found.num_generations) == (1, 8, 4)
    assert found.load_in_4bit and found.lora.dropout == 0.05 and found.warmup_ratio == 0.1 and found.beta == 0
    assert (
        found.max_prompt_length == 1024 and found.max_completion_length == 512 and found.max_samples == 1000
    )
    assert not grpo_config(TrainingArgs(no_4bit=True)).load_in_4bit
    assert grpo_config(TrainingArgs(max_samples=7)).max_samples == 7
    with pytest.raises(UsageError, match="no multiple"):
        grpo_config(TrainingArgs(grad_accum=3))


def test_train_planner_leaves_what_the_original_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    base, _, prompts = learnt_to_plan(tmp_path)
    rows = tmp_path / "gsm.jsonl"
    rows.write_text(
        "".join(
            json.dumps({"question": p.question, "answer": f"Add.\n#### {p.gold}"}) + "\n" for p in problems()
        )
    )
    out = tmp_path / "out"
    args = TrainingArgs(
        base_model=str(base), output_dir=str(out), max_steps=2, batch_size=2, grad_accum=4, num_generations=4, lr=1e-3,
        max_prompt_length=128, max_completion_length=64, save_steps=1, logging_steps=1, independence_weight=0,
    )  # fmt: skip
    beyond = Beyond(data=str(rows), prompts=prompts, worker_max_tokens=12, seed=5, revision="abc")
    seen: list[dict[str, Any]] = []
    done = train_planner(args, beyond, Home(tmp_path / "home"), seen.append)
    assert done["steps"] == 2 and seen[-1]["done"] == 2
    assert (
        {p.name for p in out.iterdir()} >= LEFT
        and (out / "checkpoint-2").is_dir()
        and not (out / ".export").exists()
    )
    config = json.loads((out / "training_config.json").read_text())
    assert config["base_model"] == str(base) and config["lora_r"] == 16 and config["token_weight"] == 0.2
    assert config["load_in_4bit"] and config["reward_mode"] == "original" and config["revision"] == "abc"
    assert "no WANDB_API_KEY" in (out / "train.log").read_text() and (out / "wandb").is_dir()
    assert config["seed"] == 5
    again = train_planner(args, beyond, Home(tmp_path / "home"), lambda facts: None)
    assert again["steps"] == 2 and again["metrics"]["resumed_from_step"] == 2
