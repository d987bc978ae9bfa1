"""The workbench of the stage that is running, made from the run's context."""

from typing import Any

from reasoner.workbench import Workbench
from tasks.context import current


def bench(key: str, label: str) -> Workbench:
    """For the stage with `key`: its working folder survives a crash, so that the same command goes on there."""
    context = current()
    work = context.home.work / key
    work.mkdir(parents=True, exist_ok=True)
    logs = context.folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)

    def show(done: int, total: int, facts: dict[str, Any]) -> None:
        context.progress.update(label, done, total, **facts)

    return Workbench(context.home, context.engines, work, logs, show)
