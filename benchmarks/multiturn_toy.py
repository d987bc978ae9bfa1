"""Claim to be shown: every multi-turn method improves a toy task that it should solve, from three seeds.

    python benchmarks/multiturn_toy.py [--methods mlmt,score] [--seeds 3] [--lr 1e-2] > toy.json

A feedback writer must name one of two hints and a solver use it (`hint`), a solver must answer by a key that it sees in
the second turn only (`again`) or at once (`direct`); tests/support/signal.py makes the tiny base, whose greedy answers
are wrong. Prints JSON: the validation accuracies before and after, and each iteration's; `learnt` is at least 0.9 after
at most 0.5 before.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reasoner.store.rows import read_rows
from reasoner.training.multiturn.launch import run_multiturn
from tests.support import signal

METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "mlmt": ("hint", {"iterations": 24}),
    "rl_guided": ("hint", {"stage1_steps": 8, "stage2_steps": 16}),
    "score": ("again", {"stage1_steps": 8, "stage2_steps": 16}),
    "archer": ("direct", {"iterations": 20, "epochs": 10, "actor_epochs": 2, "warmup_iter": 4}),
}


def measure(method: str, seed: int, lr: float, base: Path, room: Path) -> dict[str, Any]:
    """One training and what it brought."""
    task, steps = METHODS[method]
    rates = {"lm_lr": lr, "guidance_lr": lr}
    spec = signal.spec(room, base, task, method=method, seed=seed, **rates, **steps)
    started = time.monotonic()
    done = run_multiturn(spec, room / "log")
    turn = "acc_t1" if method == "archer" else "acc_t2"
    before, *_, after = [row[turn] for row in done["training"]["validations"]]
    return {
        "method": method, "seed": seed, "lr": lr, "before": before, "after": after,
        "learnt": before <= 0.5 and after >= 0.9, "seconds": round(time.monotonic() - started, 1),
        "iterations": [row[turn] for row in read_rows(spec.output / "metrics.jsonl")],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        base = signal.make_ready(Path(folder) / "base")
        rows = [
            measure(method, seed, options.lr, base, Path(folder) / f"{method}-{seed}")
            for method in options.methods.split(",")
            for seed in range(options.seeds)
        ]
    print(json.dumps({"runs": rows, "learnt": sum(row["learnt"] for row in rows)}, indent=1))


if __name__ == "__main__":
    main()
