"""What a stage finds around it while a run is going on: the home folder, the store, the engines, where to report."""

import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from reasoner.config.base import Section
from reasoner.config.tracking import TrackingConfig
from reasoner.engines.pool import EnginePool
from reasoner.errors import InfrastructureError
from reasoner.home import Home
from reasoner.ids import content_hash
from reasoner.provenance import save_code
from reasoner.records import ArtifactRef
from reasoner.releases.fresh import FreshHome
from reasoner.store import Store
from reasoner.tracking import Tracking, log_tables
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
    tracking: Tracking | None = None
    progress: Progress = field(default_factory=Progress)

    def save_config(self, config: Section) -> None:
        """The resolved configuration, as JSON, and the code, beside the run's logs."""
        (self.folder / "config.json").write_text(config.model_dump_json(indent=1) + "\n")
        save_code(self.folder)

    def finish(self, report: ArtifactRef, model: ArtifactRef | None = None) -> None:
        """Leave the report and the way to the model, where the run makes one, in the run's folder."""
        source = self.store.open(report) / "report.md"
        (self.folder / "report.md").write_text(source.read_text())
        facts: dict[str, Any] = {"report": report.to_row()}
        if model is not None:
            facts |= {"model": model.to_row(), "model_path": str(self.store.open(model))}
        (self.folder / "result.json").write_text(json.dumps(facts, indent=1) + "\n")

    def track(self, evaluations: Iterable[ArtifactRef]) -> None:
        """Show the numbers of finished evaluations in W&B, if that is asked for."""
        if self.tracking is None:
            return
        tables = {}
        for ref in evaluations:
            table = json.loads((self.store.open(ref) / "evaluation.json").read_text())
            tables[table["name"]] = {row["label"]: row for row in table["rows"]}
        log_tables(self.tracking.run("evaluation", "evaluation"), tables, _say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


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

    tracking = context.tracking
    if tracking is not None:
        # The same stage in the same home goes on with its W&B run, as it goes on from its checkpoints.
        tracking = tracking.run(label, "train", content_hash([str(context.home.path), key], 16))
    return Workbench(context.home, context.engines, work, logs, show, tracking)


@contextmanager
def forgetting() -> Iterator[None]:
    """Within a stage: what was answered before is not found again; answers are kept in the stage's working folder."""
    work = bench().work
    context = current()
    home = FreshHome(context.home.path, work / "ledger")
    token = _current.set(replace(context, home=home))
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def run_context(
    folder_name: str,
    *,
    gpu_pool: str | None = None,
    home: Home | None = None,
    idle_seconds: float = 300.0,
    tracking: TrackingConfig | None = None,
) -> Iterator[RunContext]:
    """Open the home folder for one run and close its engines at the end, whatever happens.

    An engine that nobody uses for `idle_seconds` ends. Raises `ConfigurationError` where `tracking` can't be done.
    """
    home = home or Home.from_environment()
    folder = home.runs / folder_name
    folder.mkdir(parents=True, exist_ok=True)
    tracked = Tracking.of(tracking or TrackingConfig(), folder_name, folder)
    with EnginePool(folder / "logs", idle_seconds=idle_seconds) as engines:
        context = RunContext(home, Store(home.artifacts), engines, folder, gpu_pool or "", tracked)
        token = _current.set(context)
        try:
            yield context
        finally:
            _current.reset(token)
            context.progress.close()
