"""Claim to be shown: every multi-turn method learns the toy task that shows what it claims, from each seed, and learns
nothing from exchanged verdicts.

    python benchmarks/multiturn_toy.py [--methods mlmt,score] [--seeds 5] [--controls 2] [--model FOLDER] > toy.json

A feedback writer must name one of two hints and a solver use it (`hint`), a solver must answer by a key that it sees in
the second turn only (`again`) or at once (`direct`); tests/support/signal.py makes the tiny base, whose greedy answers
are right for every other problem, and holds the settings. Prints JSON, one row a run: greedy accuracies on held-out
problems before, best and last, the best four rollouts in a row, how often the writer names the right hint, the
accuracy of each iteration; `learnt` as in tests/support/toy_run.py. `--model` takes another base, such as SmolLM2-135M,
which is taught the form of the turns first.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reasoner.environments import Environment, open_environment
from tests.support import signal
from tests.support.toy_run import exchanged, train


def measure(
    method: str, seed: int, control: bool, base: Path, judge: Environment, room: Path, fields: dict[str, Any]
) -> dict[str, Any]:
    """One training and what it brought."""
    started = time.monotonic()
    found = train(room, base, judge, method, exchanged if control else None, seed=seed, **fields)
    hints = round(found.hints_right, 3) if signal.METHODS[method][0] == "hint" else None
    return {
        "method": method, "seed": seed, "verdicts": "exchanged" if control else "own",
        "before": found.before[found.turn], "best": found.best[found.turn], "last": found.validations[-1][found.turn],
        "sampled": round(found.sampled, 3), "delta": found.best.get("delta"), "hints_right": hints,
        "learnt": found.learnt, "seconds": round(time.monotonic() - started, 1),
        "iterations": [round(row[found.turn], 3) for row in found.rows],
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--methods", default=",".join(signal.METHODS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--controls", type=int, default=2, help="seeds that are run with exchanged verdicts, too"
    )
    parser.add_argument("--model", type=Path, help="folder of a base; unset makes a tiny one")
    options = parser.parse_args()
    plan = [
        (method, seed, control)
        for method in options.methods.split(",")
        for control, seeds in ((False, options.seeds), (True, options.controls))
        for seed in range(seeds)
    ]
    rows = []
    with (
        tempfile.TemporaryDirectory() as folder,
        open_environment("math", show_tests="none", workers=1, timeout=60.0) as judge,
    ):
        ready, fields = (signal.READY, signal.LARGER) if options.model else ({}, {})
        base = signal.make_ready(Path(folder) / "base", start=options.model, **ready)
        for i, (method, seed, control) in enumerate(plan):
            rows.append(measure(method, seed, control, base, judge, Path(folder) / str(i), fields))
            print(
                json.dumps({k: v for k, v in rows[-1].items() if k != "iterations"}),
                file=sys.stderr,
                flush=True,
            )
    own = [row["learnt"] for row in rows if row["verdicts"] == "own"]
    others = [row["learnt"] for row in rows if row["verdicts"] != "own"]
    print(
        json.dumps(
            {"learnt": [sum(own), len(own)], "controls": [sum(others), len(others)], "runs": rows}, indent=1
        )
    )


if __name__ == "__main__":
    main()
