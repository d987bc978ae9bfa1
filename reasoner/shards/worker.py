"""A worker of a shared generation.

    python -m reasoner.shards.worker SPEC.json               as `reasoner.shards.hosts` starts it
    python -m reasoner.shards.worker join PLACE MODEL        on another machine, with its own copy of the model

It takes shards whose lease is free, makes what their journals lack and adds it, until every shard is finished. Any
number of workers may come and go, on any machine that reaches the place and has the model. A worker that is killed has
lost at most the completions since its last piece; the next one makes these.
"""

import contextlib
import dataclasses
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.engines.protocol import Engine
from reasoner.engines.start import open_engine
from reasoner.errors import DataError, EngineError, ModelError, ReasonerError
from reasoner.ledger.owed import LazyEngine
from reasoner.process.progress import report
from reasoner.records import Completion
from reasoner.shards.job import Job, LostLeaseError, Shard, jobs_at, model_stamp
from reasoner.shards.lease import SECONDS, Lease
from reasoner.shards.place import Place

POLL_SECONDS = 0.5


@dataclass(frozen=True)
class WorkerSpec:
    """What a worker is told."""

    place: str
    """Folder or URL of the job."""
    name: str
    """Of this worker; no two may share one."""
    log: str
    """File to which the engine's output is appended."""
    model_path: str = ""
    """The model's folder on this machine; empty for the job's own."""
    lease_seconds: float = SECONDS
    batch: int = 64
    """Completions in a piece of the journal."""
    flush_seconds: float = 5.0
    """A piece is written after so long even if it is smaller."""
    together: int = 0
    """Begin when so many workers have their engine, for measurements; 0 begins at once."""


def work(spec: WorkerSpec, tell: Callable[..., Any] = report) -> int:
    """Work until every shard is finished; returns how many completions this worker has recorded.

    Raises EngineError where the engine fails, or answers some requests with an error, after all else is recorded.
    """
    job = Job.open(Place(spec.place))
    settings = job.settings
    if spec.model_path:
        if job.fingerprint != model_stamp(Path(spec.model_path)):
            raise ModelError(f"{spec.model_path} is another model than that of the job at {spec.place}")
        settings = dataclasses.replace(settings, model_path=Path(spec.model_path))

    def start() -> Engine:
        engine = open_engine(settings, log=Path(spec.log))
        for name in job.adapters:
            engine.load_adapter(name, job.adapter(name, Path(room)))
        return engine

    made, open_ = 0, job.shards()
    with tempfile.TemporaryDirectory(prefix="reasoner-adapters-") as room, LazyEngine(start) as engine:
        if spec.together:
            engine()
            _wait_for_all(job, spec)
        # Each begins elsewhere, so that they seldom meet.
        turn = sum(spec.name.encode()) % max(1, len(open_))
        open_ = open_[turn:] + open_[:turn]
        while open_:
            before = made
            for shard in list(open_):
                if not shard.read().owed():
                    open_.remove(shard)
                    continue
                lease = Lease.take(shard.place, spec.name, spec.lease_seconds)
                if lease is None:
                    continue
                with lease:
                    made += _make(shard, engine, spec, tell)
            if open_ and made == before:
                time.sleep(POLL_SECONDS)
    return made


def _make(shard: Shard, engine: Callable[[], Engine], spec: WorkerSpec, tell: Callable[..., Any]) -> int:
    """Make what a leased shard owes; returns how many were recorded."""
    keys = shard.read().owed()
    if not keys:
        return 0
    running = engine()
    tell(ready=spec.name)
    pending: dict[str, Completion] = {}
    flushed, made, failed = time.monotonic(), 0, ""
    answers = running.generate([shard.requests[key] for key in keys])
    try:
        for i, completion in answers:
            if completion.finish == "error":
                failed = failed or completion.text[:200] or "the engine gave no reason"
                continue
            pending[keys[i]] = completion
            if len(pending) >= spec.batch or time.monotonic() - flushed >= spec.flush_seconds:
                shard.append(pending)
                made, flushed = made + len(pending), time.monotonic()
                tell(worker=spec.name, made=len(pending))
                pending = {}
    except LostLeaseError:
        answers.close()  # type: ignore[attr-defined]
        return made
    finally:
        if pending:
            try:
                shard.append(pending)
                made += len(pending)
                tell(worker=spec.name, made=len(pending))
            except LostLeaseError:
                pending = {}
    if failed:
        raise EngineError(f"some requests of {shard.place.uri} failed in the engine; the first: {failed}")
    return made


def _wait_for_all(job: Job, spec: WorkerSpec) -> None:
    job.place.replace(f"ready/{spec.name}", b"1")
    while len(job.place.names("ready")) < spec.together:
        time.sleep(0.05)
    job.place.create("started", json.dumps(time.time()).encode())


def main(arguments: list[str]) -> int:
    """Exit status 0 when the job is finished."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if arguments[:1] == ["join"]:
        return _join(arguments[1:])
    return _run(WorkerSpec(**json.loads(Path(arguments[0]).read_text(encoding="utf-8"))))


def _join(arguments: list[str]) -> int:
    """Work at every job of a place, one after the other."""
    if len(arguments) != 2:
        print("give a place and a model: join PLACE MODEL_FOLDER", file=sys.stderr)
        return 2
    try:
        jobs = jobs_at(Place(arguments[0]))
        if not jobs:
            raise DataError(f"there is no job at {arguments[0]}; join while a generation is going on")
    except ReasonerError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    name = f"{os.uname().nodename}-{uuid.uuid4().hex[:8]}"
    specs = [
        WorkerSpec(job.place.uri, name, str(Path.cwd() / f"engine-{name}.log"), arguments[1]) for job in jobs
    ]
    return max(map(_run, specs))


def _run(spec: WorkerSpec) -> int:
    try:
        work(spec)
    except ReasonerError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        with contextlib.suppress(ReasonerError):  # the place itself may be what failed
            Job.open(Place(spec.place)).fail(spec.name, str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
