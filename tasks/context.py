"""What a stage finds around it while a run is going on: the home folder, the store, the engines, where to report."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.config.base import Section
from reasoner.engines.pool import EnginePool
from reasoner.errors import InfrastructureError
from reasoner.home import Home
from reasoner.provenance import save_code
from reasoner.records import ArtifactRef
from reasoner.store import Store
from reasoner.workbench import Workbench
from tasks.progress import Progress


@dataclass
class RunContext:
    """One flow run's surroundings.

    `gpu_pool` names the work pool that GPU stages are sent to; empty runs them here. A stage that was sent there runs
    in a context of its own without a pool.
    """

    home: Home
    store: Store
    engines: EnginePool
    folder: Path
    gpu_pool: str = ""
    progress: Progress = field(default_factory=Progress)

    def save_config(self, config: Section) -> None:
        """The resolved configuration, as JSON, and the code, beside the run's logs."""
        (self.folder / "config.json").write_text(config.model_dump_json(indent=1) + "\n")
        save_code(self.folder)

    def finish(self, report: ArtifactRef, model: ArtifactRef) -> None:
        """Leave the report and the way to the model in the run's folder."""
        source = self.store.open(report) / "report.md"
        (self.folder / "report.md").write_text(source.read_text())
        facts = {
            "report": report.to_row(),
            "model": model.to_row(),
            "model_path": str(self.store.open(model)),
        }
        (self.folder / "result.json").write_text(json.dumps(facts, indent=1) + "\n")


_current: ContextVar[RunContext | None] = ContextVar("reasoner_run_context", default=None)
_stage: ContextVar[tuple[str, str] | None] = ContextVar("reasoner_stage", default=None)


def current() -> RunContext:
    """The running flow's context; a stage called outside of a flow is a mistake of ours."""
    context = _current.get()
    if context is None:
        raise InfrastructureError(
            "a stage was called outside of a run; call it within tasks.context.run_context"
        )
    return context


@contextmanager
def in_stage(key: str, label: str) -> Iterator[None]:
    """Say which stage is being computed; its working folder goes when it has ended well."""
    token = _stage.set((key, label))
    try:
        yield
        shutil.rmtree(current().home.work / key, ignore_errors=True)
    finally:
        _stage.reset(token)


def bench() -> Workbench:
    """The workbench of the stage that is being computed."""
    stage = _stage.get()
    if stage is None:
        raise InfrastructureError("there is no workbench outside of a stage")
    (key, label), context = stage, current()
    work, logs = context.home.work / key, context.folder / "logs"
    for folder in (work, logs):
        folder.mkdir(parents=True, exist_ok=True)

    def show(done: int, total: int, facts: dict[str, Any]) -> None:
        context.progress.update(label, done, total, **facts)

    return Workbench(context.home, context.engines, work, logs, show)


@contextmanager
def run_context(
    folder_name: str, *, gpu_pool: str | None = None, home: Home | None = None
) -> Iterator[RunContext]:
    """Open the home folder for one run and close its engines at the end, whatever happens."""
    home = home or Home.from_environment()
    folder = home.runs / folder_name
    folder.mkdir(parents=True, exist_ok=True)
    with EnginePool(folder / "logs") as engines:
        context = RunContext(home, Store(home.artifacts), engines, folder, gpu_pool or "")
        token = _current.set(context)
        try:
            yield context
        finally:
            _current.reset(token)
            context.progress.close()
