"""Publishes the last checkpoint's adapter with everything that says how it was made.

The folder: adapter_config.json, adapter_model.safetensors, the tokenizer with special_tokens_map.json,
training.json (ours), training_config.json (under the original's names), metrics.jsonl, examples.jsonl. No
times and no paths of this machine: equal trainings give equal bytes.
"""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reasoner.errors import TrainingError
from reasoner.ids import canonical, file_hash
from reasoner.methods.planner.prompts import PlannerPrompts
from reasoner.training import adapter, checkpoints, runtime
from reasoner.training.micro_batch import BatchRecord
from reasoner.training.planner.journal import Journal
from reasoner.training.planner.questions import Questions
from reasoner.training.planner.spec import GrpoSpec

SPECIAL_TOKENS = "special_tokens_map.json"
TRAINING_CONFIG = "training_config.json"
CURVES = ("reward", "correct", "valid", "decomposed", "independence", "worker_tokens", "planner_tokens")


def publish(
    spec: GrpoSpec, record: BatchRecord, found: Questions, prompts: PlannerPrompts, journal: Journal
) -> None:
    """Write the adapter folder. Raises TrainingError where the last step's checkpoint is not there."""
    last = checkpoints.last_complete(spec.work)
    if last is None or checkpoints.step_of(last) < spec.grpo.max_steps:
        raise TrainingError(f"The training left no complete last checkpoint in {spec.work}; run it again")
    tokenizer = runtime.load_tokenizer(spec.base)
    adapter.export_adapter(
        last, spec.output, tokenizer, spec.base_name, training_record(spec, record, found, prompts, last)
    )
    write_special_tokens(tokenizer, spec.output)
    rows = journal.publish(spec.output)
    training = json.loads((spec.output / adapter.TRAINING).read_text(encoding="utf-8"))
    training["curves"] = curves(rows, spec.grpo.logging_steps)
    checkpoints.write_json(spec.output / adapter.TRAINING, training)
    checkpoints.write_json(spec.output / TRAINING_CONFIG, training_config(spec, found))


def training_record(
    spec: GrpoSpec, record: BatchRecord, found: Questions, prompts: PlannerPrompts, last: Path
) -> dict[str, Any]:
    """What training.json says."""
    history: Any = checkpoints.state_of(last)["log_history"]
    losses = [{"step": row["step"], "loss": row["loss"]} for row in history if "loss" in row]
    return {
        "schema": 1,
        "base": {"name": spec.base_name, "fingerprint": spec.base_fingerprint},
        "method": "grpo",
        "start": file_hash(spec.start / adapter.WEIGHTS) if spec.start else None,
        "seed": spec.seed,
        "prompts": {"name": prompts.name, "hash": prompts.content_hash},
        "grpo": canonical(spec.grpo),
        "worker": canonical(spec.worker),
        "reward": canonical(spec.reward),
        "questions": found.counts(),
        "batch": canonical(record.batch),
        "halvings": record.halvings,
        "steps": checkpoints.step_of(last),
        "losses": losses,
    }


def training_config(spec: GrpoSpec, found: Questions) -> dict[str, Any]:
    """The original's file, with what it lacked: seed, data, revision, versions."""
    grpo, reward = spec.grpo, spec.reward
    return {
        "base_model": spec.base_name,
        "lora_r": grpo.lora.r,
        "lora_alpha": grpo.lora.alpha,
        "correctness_weight": reward.correctness_weight,
        "token_weight": reward.token_weight,
        "independence_weight": reward.independence_weight,
        "reward_mode": reward.mode,
        "load_in_4bit": grpo.load_in_4bit,
        "seed": spec.seed,
        "data": {"fingerprint": file_hash(spec.rows), **found.counts()},
        "revision": spec.revision or None,
        "versions": {name: version(name) for name in ("trl", "transformers", "peft", "torch")},
    }


def write_special_tokens(tokenizer: Any, folder: Path) -> None:
    """transformers 5 no longer writes this file; the original's users look for it."""
    known = tokenizer.special_tokens_map
    texts = {name: [str(t) for t in v] if isinstance(v, list) else str(v) for name, v in known.items()}
    checkpoints.write_json(folder / SPECIAL_TOKENS, texts)


def curves(rows: list[dict[str, Any]], every: int) -> list[dict[str, float]]:
    """Means of windows of `every` steps, under the window's last step."""
    windows = [rows[i : i + every] for i in range(0, len(rows), every)]
    found = []
    for window in windows:
        point = {"step": window[-1]["step"]}
        for name in CURVES:
            values = [row[f"planner/{name}"] for row in window if f"planner/{name}" in row]
            if values:
                point[name] = sum(values) / len(values)
        found.append(point)
    return found
