"""Publishes the last checkpoint's adapter with everything that says how it was made.

The folder: adapter_config.json, adapter_model.safetensors, the tokenizer with special_tokens_map.json, training.json
(ours), metrics.jsonl, examples.jsonl, and what the method adds. No times and no paths of this machine: equal trainings
give equal bytes.
"""

import json
from pathlib import Path
from typing import Any

from reasoner.errors import TrainingError
from reasoner.ids import canonical, file_hash
from reasoner.training import adapter, checkpoints, runtime
from reasoner.training.grpo.journal import Journal
from reasoner.training.grpo.method import Method
from reasoner.training.grpo.questions import Questions
from reasoner.training.grpo.spec import GrpoSpec
from reasoner.training.micro_batch import BatchRecord

SPECIAL_TOKENS = "special_tokens_map.json"


def publish(spec: GrpoSpec, method: Method, record: BatchRecord, found: Questions, journal: Journal) -> None:
    """Write the adapter folder. Raises TrainingError where the last step's checkpoint is not there."""
    last = checkpoints.last_complete(spec.work)
    if last is None or checkpoints.step_of(last) < spec.grpo.max_steps:
        raise TrainingError(f"The training left no complete last checkpoint in {spec.work}; run it again")
    tokenizer = runtime.load_tokenizer(spec.base)
    adapter.export_adapter(
        last, spec.output, tokenizer, spec.base_name, training_record(spec, method, record, found, last)
    )
    write_special_tokens(tokenizer, spec.output)
    rows = journal.publish(spec.output)
    training = json.loads((spec.output / adapter.TRAINING).read_text(encoding="utf-8"))
    training["curves"] = curves(rows, method, spec.grpo.logging_steps)
    checkpoints.write_json(spec.output / adapter.TRAINING, training)
    method.finish(found)


def training_record(
    spec: GrpoSpec, method: Method, record: BatchRecord, found: Questions, last: Path
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
        "grpo": canonical(spec.grpo),
        **method.facts,
        "questions": found.counts(),
        "batch": canonical(record.batch),
        **({"processes": spec.processes} if spec.processes > 1 else {}),
        **({"engines": spec.samplers} if spec.samplers > 1 else {}),
        "halvings": record.halvings,
        "steps": checkpoints.step_of(last),
        "losses": losses,
    }


def write_special_tokens(tokenizer: Any, folder: Path) -> None:
    """transformers 5 no longer writes this file; the planner's users look for it."""
    known = tokenizer.special_tokens_map
    texts = {name: [str(t) for t in v] if isinstance(v, list) else str(v) for name, v in known.items()}
    checkpoints.write_json(folder / SPECIAL_TOKENS, texts)


def curves(rows: list[dict[str, Any]], method: Method, every: int) -> list[dict[str, float]]:
    """Means of windows of `every` steps, under the window's last step."""
    windows = [rows[i : i + every] for i in range(0, len(rows), every)]
    found = []
    for window in windows:
        point = {"step": window[-1]["step"]}
        for name in method.curves:
            found_at = [row.get(f"{method.name}/{name}", row.get(name)) for row in window]
            values = [value for value in found_at if value is not None]
            if values:
                point[name] = sum(values) / len(values)
        found.append(point)
    return found
