"""Runs the planner's GRPO program as a child process. Importing this loads no torch."""

from pathlib import Path

from reasoner.training.grpo import launch
from reasoner.training.grpo.launch import GrpoResult
from reasoner.training.launch import OnProgress
from reasoner.training.planner.spec import PlannerGrpoSpec

PROGRAM = "reasoner.training.planner.grpo"


def run_grpo(spec: PlannerGrpoSpec, log: Path, on_progress: OnProgress | None = None) -> GrpoResult:
    """Train in a child process; see `reasoner.training.grpo.launch`."""
    return launch.run_grpo(PROGRAM, spec, log, on_progress)
