"""Several workers on this host, one a device, started one after the other and watched.

Each has a process group of its own that ends with this process. One that dies is not started again: the others go on
with its shards, whose leases are freed at once, and the same command later makes what is then owed.
"""

import contextlib
import dataclasses
import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reasoner.engines.start import engine_devices
from reasoner.errors import EngineError
from reasoner.hardware import compute_environment
from reasoner.process.child import Child, start_child
from reasoner.process.environment import python_path
from reasoner.shards.job import Job
from reasoner.shards.lease import end_leases_of
from reasoner.shards.worker import WorkerSpec

START_SECONDS = 600.0
"""The next engine is started after so long even if the one before has not said that it is ready."""
POLL_SECONDS = 0.05
STORE_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_", "FSSPEC_")

OnProgress = Callable[[dict[str, Any]], None]


def run_workers(
    job: Job, engines: int, logs: Path, work: Path, on_progress: OnProgress | None = None, **settings: Any
) -> None:
    """Run `engines` workers of `job` to its end. `settings` are fields of `WorkerSpec`.

    `on_progress` gets what the workers report: `{"worker", "made"}`. Raises EngineError when all have ended and
    something is owed; what they recorded stays.
    """
    tag = uuid.uuid4().hex[:8]
    with contextlib.ExitStack() as stack:
        children: dict[str, Child] = {}
        freed: set[str] = set()
        for number, devices in enumerate(engine_devices(job.settings.options, engines)):
            name = f"{tag}-{number}"
            spec = WorkerSpec(job.place.uri, name, str(logs / f"engine-{name}.log"), **settings)
            ready: list[bool] = []
            children[name] = stack.enter_context(
                _start(spec, work, logs, devices, _listener(ready, on_progress), job.place.remote is not None)
            )
            end = time.monotonic() + START_SECONDS
            while number + 1 < engines and not ready and time.monotonic() < end:
                if spec.together or children[name].poll() is not None:
                    break
                _watch(job, children, freed)
                time.sleep(POLL_SECONDS)
        while any(child.poll() is None for child in children.values()):
            _watch(job, children, freed)
            time.sleep(POLL_SECONDS)
        ended = [str(child.failure()) for child in children.values() if child.poll() != 0]
    left = sum(len(shard.read().owed()) for shard in job.shards())
    if left:
        why = (job.failures() or ended or ["no worker says why"])[0]
        raise EngineError(
            f"{left} completions are owed; run the same command again to make these. The first reason: {why}"
        )


def store_environment() -> dict[str, str]:
    """What clients of object stores read in this process's environment, secrets included: the workers meet there."""
    return {name: value for name, value in os.environ.items() if name.startswith(STORE_VARIABLES)}


def _start(
    spec: WorkerSpec, work: Path, logs: Path, devices: str | None, listen: OnProgress, remote: bool
) -> Child:
    path = work / f"worker-{spec.name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dataclasses.asdict(spec)), encoding="utf-8")
    env = {"PYTHONPATH": python_path(), **compute_environment(), **(store_environment() if remote else {})}
    if devices is not None:
        env["CUDA_VISIBLE_DEVICES"] = devices
    command: Sequence[str | Path] = [sys.executable, "-m", "reasoner.shards.worker", path]
    return start_child(command, log=logs / f"worker-{spec.name}.log", on_progress=listen, env=env)


def _listener(ready: list[bool], on_progress: OnProgress | None) -> OnProgress:
    def listen(facts: dict[str, Any]) -> None:
        if "ready" in facts:
            ready.append(True)
        elif on_progress is not None:
            on_progress(facts)

    return listen


def _watch(job: Job, children: dict[str, Child], freed: set[str]) -> None:
    """Free the shards of workers that have died."""
    for name, child in children.items():
        if name not in freed and child.poll() not in (None, 0):
            freed.add(name)
            for shard in job.shards():
                end_leases_of(shard.place, name)
