"""In how many steps of an engine a request joins, so that a prompt is read beside the tokens: counted, not measured.

    python benchmarks/mixed_steps.py [--requests 12000] [--low 90] [--high 190] [--at-limit 0.0] [--slots 512] [--out F]

Continuous batching as vLLM does it, without a model: every running request makes a token a step, and a slot that got
free is filled in the next step. Lengths are drawn evenly from `--low` to `--high`; the share `--at-limit` runs on to
`--high` and is cut there. With `cudagraph_mode=FULL_DECODE_ONLY` the steps in which a request joins run without CUDA
graphs. Prompts read in pieces, and memory that does not suffice, are left out.
"""

import argparse
import random
from pathlib import Path

from paced import settings_of, write


def count(lengths: list[int], slots: int) -> tuple[int, int, int]:
    """(steps, steps in which a request joins, tokens) of requests that come in this order."""
    waiting, running = lengths[::-1], list[int]()
    steps = joined = tokens = 0
    while waiting or running:
        free = min(slots - len(running), len(waiting))
        running += [waiting.pop() for _ in range(free)]
        steps, joined, tokens = steps + 1, joined + (free > 0), tokens + len(running)
        running = [left - 1 for left in running if left > 1]
    return steps, joined, tokens


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    for name, value in {"requests": 12_000, "low": 90, "high": 190, "slots": 512}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--at-limit", type=float, default=0.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    draw = random.Random(0)
    lengths = [
        given.high if draw.random() < given.at_limit else draw.randint(given.low, given.high)
        for _ in range(given.requests)
    ]
    steps, joined, tokens = count(lengths, given.slots)
    given.model = Path("none")
    told = {"steps": steps, "share_in_which_one_joins": joined / steps, "tokens_a_step": tokens / steps}
    write({"benchmark": "mixed_steps", "settings": settings_of(given), **told}, given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
