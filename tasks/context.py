"""What a stage finds around it while a run is going on: the home folder, the store, the engines, where to report."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from reasoner.engines.pool import EnginePool
from reasoner.errors import InfrastructureError
from reasoner.home import Home
from reasoner.store import Store
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
    made: list[str] = field(default_factory=list)
    """Names of the stages that this run computed rather than found in the cache."""


_current: ContextVar[RunContext | None] = ContextVar("reasoner_run_context", default=None)


def current() -> RunContext:
    """The running flow's context; a stage called outside of a flow is a mistake of ours."""
    context = _current.get()
    if context is None:
        raise InfrastructureError("a stage was called outside of a run; call it within tasks.context.run_context")
    return context


@contextmanager
def run_context(folder_name: str, *, gpu_pool: str | None = None, home: Home | None = None) -> Iterator[RunContext]:
    """Open the home folder for one run and close its engines at the end, whatever happens."""
    home = home or Home.from_environment()
    folder = home.runs / folder_name
    folder.mkdir(parents=True, exist_ok=True)
    with EnginePool() as engines:
        context = RunContext(home, Store(home.artifacts), engines, folder, gpu_pool or "")
        token = _current.set(context)
        try:
            yield context
        finally:
            _current.reset(token)
            context.progress.close()
