"""The planner's commands: the original's flags with the original's defaults, and mistakes told in a line.

Wrong if a flag of originals/recursive-reasoner.md is missing or has another default, or if work begins before a mistake
in the options is told.
"""

import re
from pathlib import Path
from typing import Any

import pytest
import typer.main

from flows.cli import app
from flows.commands import planner_steps
from reasoner.methods.planner.training_args import TrainingArgs
from reasoner.stages import planner_folder
from reasoner.stages.planner_folder import Beyond, SftArgs
from tests.unit.cli.test_cli import reasoner

FLAGS = {
    "train-planner": {
        "--base-model": "meta-llama/Llama-3.1-8B-Instruct", "--lora-r": 16, "--lora-alpha": 32, "--lr": 1e-5,
        "--batch-size": 1, "--grad-accum": 8, "--max-steps": 500, "--num-generations": 4, "--temperature": 0.7,
        "--correctness-weight": 1.0, "--token-weight": 0.2, "--independence-weight": 0.3, "--max-samples": 1000,
        "--output-dir": "./grpo_planner_adapter", "--wandb-project": "recursive-reasoner-grpo", "--no-wandb": False,
        "--no-4bit": False,
    },
    "train-sft-planner": {
        "--base-model": "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
        "--dataset-name": "emilbiju/Planning-Data-Math-Full-Soln", "--output-dir": "./deepseek-r1-planner-lora",
        "--max-seq-len": 17000, "--batch-size": 2, "--grad-accum": 8, "--lr": 1e-4, "--num-epochs": 1.0,
    },
    "infer": {
        "--base-url": "http://localhost:8000/v1", "--model": None, "--lora-adapter": "recursive_reasoner",
        "--max-tokens": 512, "--temperature": 0.7,
    },
    "merge-and-push": {
        "--base-model": None, "--adapter-path": Path("grpo_planner_adapter"), "--repo-name": "",
        "--model-card": None, "--local-save-path": None, "--no-push": False, "--private": False,
        "--adapter_model_name": Path("grpo_planner_adapter"), "--base_model_name": None, "--output_name": None,
    },
    "serve": {
        "--model": None, "--enable-lora": True, "--lora-modules": "recursive_reasoner=./grpo_planner_adapter",
        "--port": 8000,
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def commands() -> dict:
    if not any(c.name == "train-planner" for c in app.registered_commands):
        planner_steps.add_to(app)
    return typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", FLAGS)
def test_every_flag_of_the_original_has_its_default(commands: dict, name: str) -> None:
    options = {flag: option for option in commands[name].params for flag in option.opts}
    for flag, default in FLAGS[name].items():
        assert flag in options, f"{name} has no {flag}"
        assert options[flag].default == default, (flag, options[flag].default)


def test_the_flags_are_those_of_the_document(shared_data: Path) -> None:
    text = (shared_data.parent / "originals" / "recursive-reasoner.md").read_text()
    documented = set(re.findall(r"\| `(--[a-z0-9-]+)` \|", text))
    assert documented <= {flag for flags in FLAGS.values() for flag in flags} and len(documented) > 25


GRPO = {
    "base_model": "base", "lora_r": 3, "lora_alpha": 5, "lr": 0.25, "batch_size": 7, "grad_accum": 9, "max_steps": 11,
    "num_generations": 13, "temperature": 0.375, "correctness_weight": 1.5, "token_weight": 0.625,
    "independence_weight": 0.875, "max_samples": 15, "output_dir": "out", "wandb_project": "mine", "no_wandb": True,
    "no_4bit": True, "max_prompt_length": 17, "max_completion_length": 19, "logging_steps": 21, "save_steps": 23,
}  # fmt: skip
BEYOND = {
    "data": "rows", "seed": 25, "engine": "vllm", "reward_mode": "gated", "prompts": "short", "worker_max_tokens": 27,
    "worker_temperature": 0.75,
}  # fmt: skip
SFT = {
    "base_model": "base", "output_dir": "out", "max_seq_len": 29, "batch_size": 3, "grad_accum": 5, "lr": 0.25,
    "num_epochs": 1.5, "lora_r": 7, "lora_alpha": 9, "seed": 11,
}  # fmt: skip


def flags(values: dict[str, Any]) -> list[str]:
    texts = {f"--{name.replace('_', '-')}": value for name, value in values.items()}
    return [
        word for flag, value in texts.items() for word in ([flag] if value is True else [flag, str(value)])
    ]


@pytest.mark.parametrize(
    ("name", "arguments", "passed"),
    [
        (
            "train-planner", flags({**GRPO, **BEYOND, "filter_groups": True}),
            [TrainingArgs(**GRPO), Beyond(**BEYOND, filter_zero_variance="correctness")],
        ),
        ("train-sft-planner", flags({**SFT, "dataset_name": "rows"}), [SftArgs(**SFT, dataset="rows")]),
    ],
    ids=["grpo", "sft"],
)  # fmt: skip
def test_every_flag_of_a_training_arrives_under_its_name(
    commands: dict, monkeypatch: pytest.MonkeyPatch, name: str, arguments: list[str], passed: list[Any]
) -> None:
    known = {option.opts[0] for option in commands[name].params}
    assert known == {word for word in arguments if word.startswith("--")}
    given: list[Any] = []
    monkeypatch.setattr(planner_folder, name.replace("-", "_"), lambda *parts: given.extend(parts) or {})
    monkeypatch.setattr(planner_steps, "_revision", lambda: "")
    commands[name].main(arguments, standalone_mode=False)
    assert given[:-2] == passed, "the home and the progress come last"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("train-planner", "--batch-size", "3", "--no-wandb", "--grad-accum", "1"), 2, "no multiple of --num-gen"),
        (("train-planner", "--base-model", "./none", "--no-wandb"), 1, "./none: does not exist"),
        (("train-planner", "--learning-rate", "1"), 2, "No such option"),
        (("train-sft-planner", "--dataset-name", "none.jsonl"), 1, "none.jsonl: does not exist"),
        (("infer", "none.jsonl"), 1, "none.jsonl: does not exist"),
        (("infer", "--base-url", "http://127.0.0.1:9/v1"), 1, "start one with `reasoner serve`"),
        (("merge-and-push",), 2, "--repo-name must be owner/name"),
        (("merge-and-push", "--no-push"), 2, "--no-push needs --local-save-path"),
        (("merge-and-push", "--repo-name", "me/x"), 1, "set HF_TOKEN"),
        (("merge-and-push", "--repo-name", "me/x", "--no-push", "--local-save-path", "m"), 1, "is not an adapter"),
        (("serve", "--lora-modules", "x"), 2, "write NAME=FOLDER"),
        (("serve",), 1, "is not an adapter"),
        (("serve", "--trust-remote-code"), 2, "--trust-remote-code is not passed on"),
    ],
)  # fmt: skip
def test_mistakes_are_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], status: int, words: str
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    done = reasoner(*arguments, home=tmp_path)
    assert done.returncode == status and words in done.stderr, done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.strip().splitlines()) <= 3
