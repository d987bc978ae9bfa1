"""Supervised fine-tuning: our stage's trainer against TRL's SFTTrainer as it comes, tokens a second and loss.

    python benchmarks/sft.py MODEL_FOLDER [--data gsm8k_train.jsonl] [--steps 20] [--rounds 5] [--micro-batch 16]
        [--sides ours,ours_compiled,trl,trl_lean] [--profile] [--out F]

Both train the same records with the original's settings: LoRA of rank 16 on seven layers, 4 × 4 records an optimiser
step, at most 1024 tokens, 2e-4 falling linearly after 5 steps, decay 0.01. Each is a process (sft_side.py) whose steps
come on order, `--steps` optimiser steps a round, in the order A B B A; the first round is warm-up.

* `ours`: the trainer of reasoner.training, packed where the card has a kernel for it, else padded by length; records
  of `--micro-batch` at a time, 16 an optimiser step as everywhere;
* `ours_compiled`: the same with `train.compile=true`;
* `trl`: `SFTTrainer(model_folder)` with every default (padding, random order, gradient checkpointing);
* `trl_lean`: the same without gradient checkpointing.

Counted are the tokens of the records, padding left out, as the collators hand them over. After as many steps on each
side the adapters are put on the same base, in a process that did neither training, and judged on the same validation
records: the loss of each record, its mean, and the paired bootstrap interval of the difference. Peak memory is torch's
on the card, on a processor the process's.

Interrupted (Ctrl-C), it writes the rounds that it has, without losses.

On a processor TRL's default of bfloat16 is off, which would be emulated. Without `--data`, generated word problems.
Does not cover several cards or 4-bit bases. Exit status 1 where the upper end of ours over TRL is below 2.5.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from paced import median_interval, settings_of, software, write
from turns import Side, in_turns

from reasoner.config.data import ColumnMap, SourceConfig
from reasoner.config.smart import PromptConfig
from reasoner.hardware import compute_environment
from reasoner.methods.smart.controls import given_records
from reasoner.problems import load_problems
from reasoner.prompts import ChatRenderer
from reasoner.stages.training import examples
from reasoner.statistics.bootstrap import paired_difference
from reasoner.store.rows import write_rows

ROOT = Path(__file__).resolve().parents[1]
BAR = 2.5
EFFECTIVE = 16
"""Records an optimiser step, the original's 4 × 4."""


def write_records(given: argparse.Namespace, room: Path) -> dict[str, int]:
    """train.jsonl and validation.jsonl: questions with the solutions that came with them, as a stage renders them."""
    wanted = (given.rounds + 1 + given.profile) * given.steps * EFFECTIVE
    count = wanted + given.validation
    source = SourceConfig(name="bench", kind="generated", path="word-problems", limit=count)
    if given.data:
        source = SourceConfig(name="bench", kind="file", path=str(given.data), columns=ColumnMap(
            answer="answer", solution="answer"), answer_format="hash_marks", limit=count)  # fmt: skip
    rows = examples(
        given_records(load_problems(source).problems, seed=0).records,
        PromptConfig(),
        ChatRenderer(given.model),
    )
    split = {"validation": rows[: given.validation], "train": rows[given.validation :]}
    for name, chosen in split.items():
        write_rows(room / f"{name}.jsonl", [row.to_row() for row in chosen])
    return {name: len(chosen) for name, chosen in split.items()}


def measure(given: argparse.Namespace, room: Path) -> dict[str, Any]:
    """All rounds, then the losses."""
    told = {"model": str(given.model.resolve()), "room": str(room), "micro_batch": given.micro_batch,
            "effective": EFFECTIVE, "steps": (given.rounds + 1 + given.profile) * given.steps,
            "max_length": given.max_length}  # fmt: skip
    records, names = write_records(given, room), given.sides.split(",")
    running: dict[str, Side] = {}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    facts: dict[str, Any] = {}
    profiles: dict[str, Any] = {}
    whole = {"records": records, "sides": facts, "rounds": rows, "profiles": profiles, "losses": {}}
    try:
        for name in names:
            running[name] = _side(name, told, room)
            facts[name] = running[name].expect("ready")
        for number, name in in_turns(names, given.rounds):
            row = _steps(running[name], given.steps)
            print(f"round {number} {name}: {row['rate']:.1f} tokens/s", file=sys.stderr, flush=True)
            if number:
                rows[name].append(row)
        if given.profile:
            for name in names:
                profiles[name] = _steps(running[name], given.steps, profile=True)["kernels"]
        for name in names:
            running[name].order(do="save")
            running[name].expect("saved")
    except KeyboardInterrupt:
        return {**whole, "interrupted": True}
    finally:
        for side in running.values():
            side.end()
    judge = _side("judge", {**told, "sides": names}, room)
    losses = judge.expect("losses")["losses"]
    judge.end()
    return {**whole, "losses": losses}


def _side(name: str, told: dict[str, Any], room: Path) -> Side:
    argv = [str(ROOT / "benchmarks" / "sft_side.py"), name, json.dumps(told)]
    return Side(name, argv, room / f"{name}.log", compute_environment() if name.startswith("ours") else None)


def _steps(side: Side, steps: int, profile: bool = False) -> dict[str, Any]:
    side.order(do="steps", steps=steps, profile=profile)
    row = side.expect("tokens")
    return {**row, "rate": row["tokens"] / row["seconds"]}


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """Rates, ratios, memory, and whether the losses can be told apart."""
    rounds = {name: rows for name, rows in found["rounds"].items() if rows}
    rates = {name: [row["rate"] for row in rows] for name, rows in rounds.items()}
    losses = found["losses"]
    told: dict[str, Any] = {
        "tokens_per_second": {name: median_interval(values) for name, values in rates.items()},
        "peak_gib": {name: max(r["memory"] for r in rows) for name, rows in rounds.items()},
        "padding": {
            name: 1 - sum(r["tokens"] for r in rows) / sum(r["places"] for r in rows)
            for name, rows in rounds.items()
        },
        "validation_loss": {name: sum(values) / len(values) for name, values in losses.items()},
    }
    others = [name for name in rates if name != "ours" and "ours" in rates]
    told["ours_over"] = {
        name: median_interval([a / b for a, b in zip(rates["ours"], rates[name], strict=False)])
        for name in others
    }
    told["loss_ours_minus"] = {
        name: paired_difference(losses["ours"], losses[name]).to_row() for name in others if losses
    }
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, help="questions in GSM8K's shape; unset generates some")
    parser.add_argument("--steps", type=int, default=20, help="optimiser steps a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--validation", type=int, default=200, help="records whose loss is compared")
    parser.add_argument("--micro-batch", type=int, default=4, help="ours, at most so many records at once")
    parser.add_argument("--max-length", type=int, default=1024)
    parser.add_argument("--sides", default="ours,trl,trl_lean")
    parser.add_argument("--profile", action="store_true", help="one more round with the longest kernels")
    parser.add_argument("--logs", type=Path, help="an empty folder that keeps what the processes said")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        logs = given.logs or Path(room)
        logs.mkdir(parents=True, exist_ok=True)
        found = measure(given, logs)
    told = summary(found)
    result = {"benchmark": "sft", **software(), "settings": settings_of(given), "bar": BAR, "summary": told}
    write(result | found, given.out)
    return int("trl" in told["ours_over"] and told["ours_over"]["trl"]["high"] < BAR)


if __name__ == "__main__":
    raise SystemExit(main())
