"""What a request costs the processor on its way through a generation stage: requests a second, milliseconds a request.

    python benchmarks/host_path.py [MODEL_FOLDER] [--shape sampling] [--prompts 1024] [--length 0.05] [--rounds 5]
        [--against CHECKOUT] [--profile] [--out F]

A round is `reasoner.stages.generation.generate`, the work of a stage, on fresh prompts and a fresh home: prompts,
keys, the engine's process and its wire, the ledger with its fsyncs, the rows. Without a model the engine is a script
that answers at once (null_answer.py), so that everything but vLLM is left; with a model, best one of a layer and short
answers, vLLM's own work for a request is there, too. Reported are requests a second and the processor's milliseconds a
request, of this side (`stage`) and of the engine's process (`engine`), all its threads.

`--against CHECKOUT` measures another checkout of the project in the same run, A B B A, and the ratio of the two.
`--profile` adds, for each side, the functions that took longest in the stage's process, and those of a whole stage with
its engine in the same process.

Does not cover what a card does meanwhile, verdicts, or Prefect (overhead.py). No bar: exit status 0.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from paced import median_interval, settings_of, software, write
from turns import Side, in_turns

HERE = Path(__file__).resolve().parent
FIELDS = ("requests_per_second", "stage_ms", "engine_ms")


def side(name: str, checkout: Path, given: argparse.Namespace, room: Path) -> Side:
    """The process that carries stages out with the code of `checkout`."""
    told = {"root": str(checkout.resolve()), "room": str(room / name), "shape": given.shape, "prompts": given.prompts,
            "length": given.length, "model": given.model and str(given.model.resolve()),
            "options": json.loads(given.options)}  # fmt: skip
    argv = [str(HERE / "host_path_side.py"), json.dumps(told)]
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    return Side(name, argv, room / f"{name}.log", {"PYTHONPATH": path})


def measure(given: argparse.Namespace, room: Path) -> dict[str, Any]:
    """The rounds of each side, and their profiles."""
    checkouts = {"here": HERE.parent, **({"against": given.against} if given.against else {})}
    running = {name: side(name, checkout, given, room) for name, checkout in checkouts.items()}
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in running}
    profiles = {}
    try:
        for name in running:
            running[name].expect("ready")
        for number, name in in_turns(list(running), given.rounds):
            running[name].order(do="round", number=number)
            row = running[name].expect("requests_per_second")
            line = f"{row['requests_per_second']:.0f} requests/s, {row['stage_ms']:.3f} + {row['engine_ms']:.3f} ms"
            print(f"round {number} {name}: {line}", file=sys.stderr, flush=True)
            if number:
                rows[name].append(row)
        if given.profile:
            for name in running:
                running[name].order(do="profile")
                profiles[name] = running[name].expect("stage")
    finally:
        for process in running.values():
            process.end()
    return {"rounds": rows, "profiles": profiles}


def summary(rows: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians, and `against` over `here`: above 1 more milliseconds, below 1 fewer requests a second there."""
    told: dict[str, Any] = {
        name: {field: median_interval([row[field] for row in found]) for field in FIELDS}
        for name, found in rows.items()
    }
    if "against" in rows:
        pairs = list(zip(rows["against"], rows["here"], strict=True))
        told["against_over_here"] = {
            field: median_interval([a[field] / b[field] for a, b in pairs]) for field in FIELDS
        }
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", type=Path, nargs="?", help="unset takes the script that answers at once")
    parser.add_argument("--shape", choices=("few_shot", "sampling"), default="sampling")
    parser.add_argument("--prompts", type=int, default=1024)
    parser.add_argument("--length", type=float, default=0.05, help="times the shape's answers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout of this project")
    parser.add_argument("--options", default="{}", help="the engine's options as JSON")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        found = measure(given, Path(room))
    given.model = given.model or Path("null")
    result = {"benchmark": "host_path", **software(), "settings": settings_of(given)}
    write({**result, "summary": summary(found["rounds"]), **found}, given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
