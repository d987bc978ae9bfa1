"""Which runs are going on: each of a run's processes holds a lock file in `locks/runs` while it lives.

Not covered: runs of another machine that shares the home folder through a file system without flock.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from reasoner.errors import BusyError
from reasoner.home import Home
from reasoner.process.locks import FileLock

FOLDER = "runs"
MARK = "--"


@dataclass(frozen=True, slots=True)
class Live:
    """A process of a run."""

    run: str
    """The name of the run's folder."""
    since: float
    """When it began, in seconds since the epoch."""


@contextmanager
def alive(home: Home, run: str) -> Iterator[None]:
    """Say that a process of `run` is at work, until the block ends or the process does."""
    lock = FileLock(home.locks / FOLDER / f"{run}{MARK}{uuid.uuid4().hex[:8]}.lock")
    lock.acquire()  # only housekeeping, which tries it, can hold it for a moment
    try:
        yield
    finally:
        lock.release_and_remove()


def live_runs(home: Home) -> list[Live]:
    """The processes at work now. Lock files of dead ones are taken away."""
    found = []
    for path in sorted((home.locks / FOLDER).glob("*.lock")):
        try:
            since = path.stat().st_mtime
        except OSError:
            continue  # it ended in this moment
        lock = FileLock(path)
        try:
            lock.try_acquire()
        except BusyError:
            found.append(Live(path.name.rpartition(MARK)[0], since))
        else:
            lock.release_and_remove()
    return found
