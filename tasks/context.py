"""What a stage finds around it while a run is going on: the home folder, the store, the engines, where to report."""

import contextlib
import json
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reasoner.config.base import Section
from reasoner.config.tracking import TrackingConfig
from reasoner.config.training import ComputeConfig
from reasoner.engines.kept.slot import kept_slot
from reasoner.engines.pool import EnginePool
from reasoner.errors import ArtifactError, InfrastructureError, without_secrets
from reasoner.home import Home
from reasoner.housekeeping.live import alive
from reasoner.ids import content_hash
from reasoner.lineage import journal
from reasoner.lineage.calls import Call
from reasoner.planning.plan import TIMINGS
from reasoner.provenance import save_code
from reasoner.records import ArtifactRef
from reasoner.redaction import install, redact
from reasoner.releases.fresh import FreshHome
from reasoner.report.html.build import write_if_cheap
from reasoner.store import Store
from reasoner.tracking import Tracking
from reasoner.tracking.evaluations import log_tables
from reasoner.training import zero
from reasoner.workbench import Workbench
from tasks.progress import Progress

if TYPE_CHECKING:
    from tasks.stage import Stage


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
    compute: ComputeConfig = field(default_factory=ComputeConfig)
    progress: Progress = field(default_factory=Progress)
    computed: set[str] = field(default_factory=set)
    """Keys of the stages that this process computed."""
    called: bool = False
    """Whether this is the flow that calls stages, and not a child that computes one of them."""

    def started(self, call: Call) -> None:
        """A stage begins to be computed."""
        self.computed.add(call.key)
        journal.append(self.folder, journal.STARTED, call)

    def ended(self, call: Call) -> None:
        """A stage's artifact is there."""
        self.called = True
        journal.append(self.folder, journal.MADE if call.key in self.computed else journal.CACHED, call)

    def save_config(self, config: Section) -> None:
        """The resolved configuration, as JSON, and the code, beside the run's logs."""
        (self.folder / "config.json").write_text(config.model_dump_json(indent=1) + "\n")
        save_code(self.folder)

    def rehearse(self, stage: "Stage", arguments: dict[str, Any]) -> ArtifactRef | None:
        """Nothing in a real run; in `tasks.planning` and `tasks.rehearsal` the answer that stands for the stage's."""
        return None

    def note_time(self, key: str, label: str, ref: ArtifactRef, seconds: float) -> None:
        """One line in the run's folder for a stage that was computed: what `reasoner plan RUN --actual` compares."""
        with contextlib.suppress(ArtifactError, OSError):  # a run does not end for a line of its diary
            counted = self.store.manifest(ref).metadata
            row = {"key": key, "label": label, "seconds": round(seconds, 3), **measured(counted)}
            with (self.folder / TIMINGS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def finish(self, report: ArtifactRef, model: ArtifactRef | None = None) -> None:
        """Leave the report and the way to the model, where the run makes one, in the run's folder."""
        source = self.store.open(report) / "report.md"
        (self.folder / "report.md").write_text(source.read_text())
        facts: dict[str, Any] = {"report": report.to_row()}
        if model is not None:
            facts |= {"model": model.to_row(), "model_path": str(self.store.open(model))}
        (self.folder / "result.json").write_text(json.dumps(facts, indent=1) + "\n")
        write_if_cheap(self.folder, self.home, self.progress.say)

    def track(self, evaluations: Iterable[ArtifactRef]) -> None:
        """Show the numbers of finished evaluations in W&B, if that is asked for."""
        if self.tracking is None:
            return
        tables = {}
        for ref in evaluations:
            table = json.loads((self.store.open(ref) / "evaluation.json").read_text())
            tables[table["name"]] = {row["label"]: row for row in table["rows"]}
        log_tables(self.tracking.run("evaluation", "evaluation"), tables, _say)


def measured(metadata: dict[str, Any]) -> dict[str, float]:
    """What a stage counted that a plan predicts: tokens that were made now, peaks of memory."""
    found_there = metadata.get("metrics") or metadata.get("parity")
    metrics = found_there if isinstance(found_there, dict) else {}
    found: dict[str, float] = {}
    if metadata.get("owed"):
        found["new_tokens"] = metadata.get("tokens", 0)
    for name in ("host", "device"):
        if f"{name}_gib" in metrics:
            found[f"{name}_bytes"] = metrics[f"{name}_gib"] * 2**30
    return found


def _say(line: str) -> None:
    print(redact(line), file=sys.stderr, flush=True)


_current: ContextVar[RunContext | None] = ContextVar("reasoner_run_context", default=None)
_rehearsal: ContextVar[RunContext | None] = ContextVar("reasoner_rehearsal", default=None)
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
def clean_errors() -> Iterator[None]:
    """What Prefect stores of an error is its words: let no secret stand in them."""
    try:
        yield
    except Exception as error:
        cleaned = without_secrets(error)
        if cleaned is error:
            raise
        raise cleaned from None


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
    return Workbench(context.home, context.engines, work, logs, show, tracking, context.compute)


def in_run() -> bool:
    """Whether a run is going on here."""
    return _current.get() is not None


@contextmanager
def rehearsing(context: RunContext) -> Iterator[None]:
    """In the block `run_context` gives `context`, whose `rehearse` answers for every stage."""
    tokens = _rehearsal.set(context), _current.set(context)
    try:
        yield
    finally:
        _rehearsal.reset(tokens[0])
        _current.reset(tokens[1])


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
    compute: ComputeConfig | None = None,
    keep_engine: bool = False,
) -> Iterator[RunContext]:
    """Open the home folder for one run and close its engines at the end, whatever happens.

    An engine that nobody uses for `idle_seconds` ends. With `keep_engine` one that is in use at the end waits so long
    for the next process, under a worker that ends it (`reasoner.engines.kept`). Raises `ConfigurationError` where
    `tracking` can't be done, `UsageError` where `compute` names a package that training here would need.
    """
    rehearsal = _rehearsal.get()
    if rehearsal is not None:
        yield rehearsal
        return
    install()
    home = home or Home.from_environment()
    folder, progress = home.runs / folder_name, Progress()
    kept = kept_slot(home, idle_seconds, progress.say) if keep_engine else None
    with (
        alive(home, folder_name),
        EnginePool(folder / "logs", idle_seconds=idle_seconds, kept=kept) as engines,
    ):
        folder.mkdir(parents=True, exist_ok=True)
        tracking = tracking or TrackingConfig()
        tracked = Tracking.of(tracking.wandb, tracking.project, folder_name, folder)
        store, compute = Store(home.artifacts), compute or ComputeConfig(idle_seconds=idle_seconds)
        if not gpu_pool:
            zero.require(compute)
        context = RunContext(home, store, engines, folder, gpu_pool or "", tracked, compute, progress)
        token = _current.set(context)
        try:
            with clean_errors():
                yield context
            if context.called:
                journal.finish(folder)
        finally:
            _current.reset(token)
            context.progress.close()
