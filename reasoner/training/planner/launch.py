"""Runs the GRPO program as a child process. Importing this loads no torch."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.tracking import secrets
from reasoner.training.adapter import TRAINING
from reasoner.training.launch import OnProgress, read_json, run_program
from reasoner.training.planner.spec import GrpoSpec
from reasoner.training.runtime import METRICS_FILE


@dataclass(frozen=True)
class GrpoResult:
    """A finished training: the adapter's folder, its training.json, and times and memory."""

    adapter: Path
    training: dict[str, Any]
    metrics: dict[str, Any]


def grpo_argv(spec_file: Path) -> list[str]:
    """The command that runs `grpo.py`."""
    return [sys.executable, "-m", "reasoner.training.planner.grpo", str(spec_file)]


def run_grpo(
    spec: GrpoSpec, log: Path, on_progress: OnProgress | None = None, timeout: float | None = None
) -> GrpoResult:
    """Train in a child process, with its output appended to `log`; `timeout` in seconds.

    The same call again after a crash goes on from the last complete checkpoint in `spec.work`. Where W&B is on, its key
    is passed on from this process's environment.
    """
    env = secrets() if spec.tracking else {}
    run_program(grpo_argv(spec.save(spec.work / "grpo.json")), spec.work, log, on_progress, timeout, env)
    return GrpoResult(spec.output, read_json(spec.output / TRAINING), read_json(spec.work / METRICS_FILE))
