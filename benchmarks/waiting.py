"""Two computations beside each other on a processor, with threads that spin at barriers and with ours that soon sleep.

    python benchmarks/waiting.py [--rounds 5] [--steps 12] [--out build/waiting.json]

A computation trains a stack of linear layers of SmolLM2-135M's size on 1,000 rows, in a process of its own with as many
threads as there are cores, and tells its seconds a step. Each round has it alone and twice at the same time, in the
environment that this project gives to its children (`SHORT_WAIT`) and without it, the order turned from round to round,
the first of them for warming up. `beside`: seconds of the slower of two over seconds alone; 2 is what two would take
one after the other.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from paced import write  # noqa: E402
from turns import in_turns  # noqa: E402

CODE = """
import sys, time, torch
from torch import nn
steps, threads = int(sys.argv[1]), int(sys.argv[2])
torch.set_num_threads(threads)
layers = [layer for _ in range(12) for layer in (nn.Linear(576, 1536), nn.SiLU(), nn.Linear(1536, 576))]
model, rows = nn.Sequential(*layers), torch.randn(1000, 576)
optimiser = torch.optim.AdamW(model.parameters(), 1e-4)
def step():
    optimiser.zero_grad()
    model(rows).pow(2).mean().backward()
    optimiser.step()
step()
started = time.monotonic()
for _ in range(steps):
    step()
print((time.monotonic() - started) / steps)
"""


def seconds(count: int, steps: int, environment: dict[str, str]) -> list[float]:
    """Seconds a step of `count` computations that run at the same time."""
    argv = [sys.executable, "-c", CODE, str(steps), str(len(os.sched_getaffinity(0)))]
    env = {
        k: v
        for k, v in os.environ.items()
        if k not in ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    running = [
        subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env | environment) for _ in range(count)
    ]
    return [float(process.communicate()[0]) for process in running]


def main() -> int:
    from reasoner.hardware import KEPT_MEMORY, SHORT_WAIT

    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "waiting.json")
    given = parser.parse_args()
    sides = {"spinning": dict(KEPT_MEMORY), "ours": KEPT_MEMORY | SHORT_WAIT}
    alone: dict[str, list[float]] = {name: [] for name in sides}
    beside: dict[str, list[float]] = {name: [] for name in sides}
    for number, name in in_turns(sorted(sides), given.rounds):
        one, two = seconds(1, given.steps, sides[name]), max(seconds(2, given.steps, sides[name]))
        if number:
            alone[name] += one
            beside[name].append(two)
    ratios = [b / a for a, b in zip(beside["ours"], beside["spinning"], strict=True)]
    found: dict[str, Any] = {
        "cores": len(os.sched_getaffinity(0)), "rounds": given.rounds, "alone": alone, "two": beside,
        "beside": {name: median(beside[name]) / median(alone[name]) for name in sides},
        "spinning_over_ours": {"two": [round(r, 3) for r in sorted(ratios)], "median": median(ratios)},
        "alone_spinning_over_ours": median(alone["spinning"]) / median(alone["ours"]),
    }  # fmt: skip
    write(found, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
