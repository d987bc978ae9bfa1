"""Running a training program as a child process, and what comes back of it.

Importing this loads no torch. A failure that the program explained (work/error.json) is raised here as the
same class of `reasoner.errors`; any other end of the child is a `ChildFailedError`.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner import errors
from reasoner.errors import ChildFailedError, ReasonerError, UsageError
from reasoner.hardware import compute_environment, has_nvidia
from reasoner.process.child import run_child
from reasoner.tracking import secrets
from reasoner.training.adapter import TRAINING
from reasoner.training.runtime import ERROR_FILE, METRICS_FILE
from reasoner.training.specs import Device, MergeSpec, SftSpec
from reasoner.trouble import machine_trouble

SERVER_KEY = "VLLM_API_KEY"
OnProgress = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class SftResult:
    """A finished training: the adapter's folder, its training.json, and times and memory."""

    adapter: Path
    training: dict[str, Any]
    metrics: dict[str, Any]


@dataclass(frozen=True)
class MergeResult:
    """A finished merge: the model's folder and the numbers of its parity check."""

    model: Path
    metrics: dict[str, Any]


def sft_argv(spec_file: Path, processes: int = 1, device: Device = "auto") -> list[str]:
    """The command that runs `sft.py`."""
    return program_argv("reasoner.training.sft", spec_file, processes, device)


def program_argv(program: str, spec_file: Path, processes: int = 1, device: str = "auto") -> list[str]:
    """The command of a training program: plain `python -m`, `accelerate launch` for several, torchrun on the CPU."""
    if processes < 1:
        raise UsageError(f"processes is {processes}; at least 1 is needed")
    module = ["-m", program, str(spec_file)]
    if processes == 1:
        return [sys.executable, *module]
    if device == "cpu" or (device == "auto" and not has_nvidia()):
        # accelerate 1.15 would want mpirun here; its own state reads torchrun's environment.
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(processes)]
        return [sys.executable, *torchrun, *module]
    # `no`: the program itself tells the Trainer its precision, whatever the launcher's default is.
    options = ["--multi_gpu", "--num_processes", str(processes), "--num_machines", "1"]
    fixed = ["--mixed_precision", "no", "--dynamo_backend", "no"]
    return [sys.executable, "-m", "accelerate.commands.launch", *options, *fixed, *module]


def merge_argv(spec_file: Path) -> list[str]:
    """The command that runs `merge.py`."""
    return [sys.executable, "-m", "reasoner.training.merge", str(spec_file)]


def run_sft(
    spec: SftSpec, log: Path, on_progress: OnProgress | None = None, timeout: float | None = None
) -> SftResult:
    """Train in a child process, with its output appended to `log`; `timeout` in seconds.

    `on_progress` gets `{"done": step, "total": steps, "loss": …}` after each step. The same call again after
    a crash goes on from the last complete checkpoint in `spec.work`.
    """
    argv = sft_argv(spec.save(spec.work / "sft.json"), spec.processes, spec.device)
    run_program(argv, spec.work, log, on_progress, timeout, secrets() if spec.tracking else {})
    return SftResult(spec.output, read_json(spec.output / TRAINING), read_json(spec.work / METRICS_FILE))


def run_merge(
    spec: MergeSpec, log: Path, on_progress: OnProgress | None = None, timeout: float | None = None
) -> MergeResult:
    """Merge in a child process; see `run_sft`."""
    run_program(merge_argv(spec.save(spec.work / "merge.json")), spec.work, log, on_progress, timeout)
    return MergeResult(spec.output, read_json(spec.work / METRICS_FILE))


def run_program(
    argv: list[str],
    work: Path,
    log: Path,
    on_progress: OnProgress | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
) -> None:
    """Run a training program to its end; raises what it explained in work/error.json. `env` is added to the child's
    environment, for example a key that the program needs."""
    explained = work / ERROR_FILE
    explained.unlink(missing_ok=True)
    try:
        run_child(
            argv,
            log=log,
            on_progress=on_progress,
            timeout=timeout,
            env=compute_environment() | dict(env or {}),
        )
    except ChildFailedError as failure:
        try:
            found = json.loads(explained.read_text(encoding="utf-8"))
            kind = getattr(errors, found["error"])
        except (OSError, ValueError, KeyError, AttributeError):
            # The child could neither explain itself nor, perhaps, write its log.
            raise machine_trouble(failure, work) or failure from None
        if not (isinstance(kind, type) and issubclass(kind, ReasonerError)):
            raise
        raise kind(found["message"]) from failure


def server_key(url: str) -> dict[str, str]:
    """The key of the server at `url`, for the environment of a training that samples there; {} without one."""
    key = os.environ.get(SERVER_KEY)
    return {SERVER_KEY: key} if url and key else {}


def read_json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value
