"""Seconds of a GRPO step: our on-policy loop against TRL's own colocated mode with merged weights, in one run.

    python benchmarks/grpo_step.py MODEL_FOLDER [--data gsm8k_train.jsonl] [--prompts 8] [--group 8] [--tokens 512]
        [--micro-batch 16] [--rank 16] [--repeats 5] [--share 0.3] [--no-sleep] [--sides ours,trl] [--out F]

Each side is a process with TRL's GRPOTrainer, the same base, adapter, questions, optimiser and reward (grpo_side.py);
both stay loaded on one card and take turns, A B B A, while the other one is idle. Each is measured with its engine
awake all the time, then with its engine asleep while the optimiser works (`+sleep`; TRL's level 2, ours level 1). The
first round of each is warm-up. Steps sample with the weights that the step before has made, so lengths differ a little:
seconds for 1,000 generated tokens stand beside seconds a step. TRL's mode scores all completions once more by default
(its correction of the sampler's importance); the ratio without that part stands beside the plain one.

Also: the difference of sampler and trainer at step 0 and at each step, the share of sync, whether after an update the
engine samples with the new adapter and the base answers as before, memory by part.

Covers one card. On a CPU only our side runs: TRL's mode fails on vLLM's CPU build. Exit status 1 where the interval of
the ratio TRL / ours lies below 1.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paced import median_interval, settings_of, write
from turns import Side

HERE = Path(__file__).resolve().parent
BAR = 1.0
CPU = "TRL's colocated mode fails on vLLM's CPU build at the first weight sync: only ours is measured"


def measure(given: argparse.Namespace, room: Path) -> dict[str, Any]:
    """Start the sides one after another, step them in turns, ask ours what it found. A failed side is left out, with
    its error."""
    cuda = _has_card()
    settings = {
        **{k: getattr(given, k) for k in ("prompts", "group", "tokens", "rank", "lr", "share", "jump", "sleep")},
        "model": str(given.model.resolve()), "data": given.data and str(given.data.resolve()),
        "micro_batch": given.micro_batch, "prompt_tokens": given.prompt_tokens, "options": json.loads(given.options),
        "gradient_checkpointing": not given.no_gradient_checkpointing,
        "questions": 2 * given.prompts * (given.repeats + 2),
    }  # fmt: skip
    names = [n for n in given.sides.split(",") if cuda or n == "ours"]
    result: dict[str, Any] = {"errors": {}, "sides": {}, "started": {}}
    if not cuda:
        result["note"] = CPU
    running = {name: _side(name, settings, room / name) for name in names}
    try:
        for name in names:  # loading overlaps; engines start one after another
            _try(result, running, name, _start)
        for sleep in (False, True) if given.sleep else (False,):
            for number in range(given.repeats + 1):
                for name in names if number % 2 == 0 else names[::-1]:
                    _try(result, running, name, _step, sleep, number)
        for name in names:
            _try(result, running, name, _check)
    except KeyboardInterrupt:
        result["interrupted"] = True
    finally:
        for side in running.values():
            side.end()
    return result


def _side(name: str, settings: dict[str, Any], room: Path) -> Side:
    told = json.dumps({**settings, "room": str(room)})
    return Side(name, [str(HERE / "grpo_side.py"), name, told], room / "side.log")


def _has_card() -> bool:
    """Asked in another process: this one must not hold memory on the card."""
    asked = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", asked], check=False).returncode == 0


def _try(
    result: dict[str, Any], running: dict[str, Side], name: str, do: Callable[..., None], *more: Any
) -> None:
    if name not in running:
        return
    try:
        do(running[name], result, *more)
    except RuntimeError as error:
        print(error, file=sys.stderr, flush=True)
        result["errors"][name] = str(error).splitlines()[0]
        running.pop(name).end()


def _start(side: Side, result: dict[str, Any]) -> None:
    side.expect("loaded")
    side.order(do="start")
    started = side.expect("ready")
    result["machine"] = started["machine"]
    result["started"][side.name] = started["memory"]
    print(f"{side.name}: ready, {started['memory']}", file=sys.stderr, flush=True)


def _step(side: Side, result: dict[str, Any], sleep: bool, number: int) -> None:
    side.order(do="step", sleep=sleep)
    row = side.expect("wall")
    label = side.name + ("+sleep" if sleep else "")
    line = f"round {number} {label}: {row['wall']:.2f} s, {row['tokens']:.0f} tokens"
    print(line, file=sys.stderr, flush=True)
    if number:
        result["sides"].setdefault(label, []).append(row)


def _check(side: Side, result: dict[str, Any]) -> None:
    side.order(do="check")
    result[f"check_{side.name}"] = side.expect("check")["check"]


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians of a side: seconds, tokens, seconds by part, the share of sync."""
    names = sorted({name for row in rows for name in row["parts"]})
    return {
        "seconds": median_interval([row["wall"] for row in rows]),
        "seconds_per_1000_tokens": median_interval([1000 * row["wall"] / row["tokens"] for row in rows]),
        "tokens": statistics.median(row["tokens"] for row in rows),
        "parts": {n: round(statistics.median(row["parts"].get(n, 0.0) for row in rows), 4) for n in names},
        "other": round(statistics.median(row["other"] for row in rows), 4),
        "sync_share": median_interval([sync(row["parts"]) / row["wall"] for row in rows]),
        "peak_gib": {k: max(row["memory"].get(k) or 0.0 for row in rows) for k in rows[0]["memory"]},
    }


def sync(parts: dict[str, float]) -> float:
    """Seconds of bringing the adapter to the engine, whichever part of it."""
    return sum(seconds for name, seconds in parts.items() if name.startswith("sync"))


def ratios(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """TRL's time over ours, by rounds: plain, for the same number of tokens, and without scoring under no gradient."""
    pairs = list(zip(ours, theirs, strict=False))

    def without(row: dict[str, Any]) -> float:
        return float(row["wall"] - row["parts"].get("logprobs", 0.0))

    return {
        "step": median_interval([b["wall"] / a["wall"] for a, b in pairs]),
        "same_tokens": median_interval(
            [b["wall"] / b["tokens"] / (a["wall"] / a["tokens"]) for a, b in pairs]
        ),
        "without_logprobs": median_interval([without(b) / without(a) for a, b in pairs]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, help="questions in GSM8K's shape; unset generates some")
    numbers = {"prompts": 8, "group": 8, "tokens": 512, "prompt-tokens": 512, "micro-batch": 16, "rank": 16}
    numbers["repeats"] = 5
    for name, value in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--lr", type=float, default=1e-5)
    parser.add_argument("--share", type=float, default=0.3, help="of the card's memory, for each engine")
    parser.add_argument("--jump", type=float, default=0.04, help="size of the update that the check makes")
    parser.add_argument("--no-sleep", dest="sleep", action="store_false")
    parser.add_argument("--no-gradient-checkpointing", action="store_true")
    parser.add_argument("--sides", default="ours,trl")
    parser.add_argument("--options", default="{}", help="further options of our engine as JSON")
    parser.add_argument("--logs", type=Path, help="an empty folder that keeps what the processes said")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        found = measure(given, given.logs or Path(room))
    sides = found.pop("sides")
    result = {"benchmark": "grpo_step", **found, "settings": settings_of(given), "bar": BAR}
    result["summary"] = {name: summary(rows) for name, rows in sides.items()}
    result["ratio_trl_over_ours"] = {
        way or "awake": ratios(sides[f"ours{way}"], sides[f"trl{way}"])
        for way in ("", "+sleep")
        if f"ours{way}" in sides and f"trl{way}" in sides
    }
    result["rounds"] = sides
    write(result, given.out)
    slower = [r for r in result["ratio_trl_over_ours"].values() if r["step"]["high"] < BAR]
    return int(bool(slower or found["errors"]))


if __name__ == "__main__":
    raise SystemExit(main())
