"""Runs a GRPO program as a child process. Importing this loads no torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.config.training import share_of
from reasoner.engines.start import engine_devices
from reasoner.tracking import secrets
from reasoner.training.adapter import TRAINING
from reasoner.training.grpo.spec import GrpoSpec
from reasoner.training.launch import OnProgress, program_argv, read_json, run_program, server_key
from reasoner.training.runtime import METRICS_FILE


@dataclass(frozen=True)
class GrpoResult:
    """A finished training: the adapter's folder, its training.json, and times and memory."""

    adapter: Path
    training: dict[str, Any]
    metrics: dict[str, Any]

    @property
    def summary(self) -> dict[str, Any]:
        """For a manifest, which need not hold every step: the curves say it shorter."""
        training = {name: value for name, value in self.training.items() if name != "losses"}
        return {"training": training, "metrics": self.metrics}


def run_grpo(
    module: str, spec: GrpoSpec, log: Path, on_progress: OnProgress | None = None, timeout: float | None = None
) -> GrpoResult:  # fmt: skip
    """Run the program `module` in a child process, with its output appended to `log`; `timeout` in seconds.

    The same call again after a crash goes on from the last complete checkpoint in `spec.work`. Where W&B is on, its key
    is passed on from this process's environment, and so is the key of a server that samples.
    """
    share_of(spec.grpo.batch_size * spec.grpo.grad_accum, spec.processes)  # told before anything starts
    if spec.samplers > 1:
        engine_devices(spec.engine_options, spec.samplers)  # so are too few cards
    argv = program_argv(module, spec.save(spec.work / "grpo.json"), spec.processes, spec.device)
    keys = server_key(spec.grpo.server.url) | (secrets() if spec.tracking else {})
    run_program(argv, spec.work, log, on_progress, timeout, keys)
    return GrpoResult(spec.output, read_json(spec.output / TRAINING), read_json(spec.work / METRICS_FILE))
