"""Removes what nothing reaches, beside runs that go on.

Every removal is a rename out of sight followed by a deletion, under the lock that a run would hold to make or find the
same thing: so a run sees all of it or nothing, and what a killed sweep leaves is taken away by the next one. Ledgers
go before the models that tell whose they are, and an artifact before what it was made from.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reasoner.errors import BusyError
from reasoner.home import Home
from reasoner.housekeeping import ledgers
from reasoner.housekeeping.live import live_runs
from reasoner.housekeeping.reach import UNFINISHED, Reach
from reasoner.housekeeping.results import kept_result, kept_results
from reasoner.housekeeping.sizes import measure
from reasoner.ledger.ledger import opening_lock
from reasoner.lineage.calls import ident
from reasoner.process.locks import FileLock
from reasoner.process.stage_lock import stage_lock
from reasoner.records import ArtifactRef
from reasoner.store import Store
from reasoner.store.durable import make_folder
from reasoner.store.publish import DAMAGED
from reasoner.store.removal import last_used, remove
from reasoner.store.temporary import make_temporary, remove_stale, remove_temporary

TRASH = ".trash"
LEDGER, WORK, RUN, ARTIFACT, LEFT = "ledger", "work", "run", "artifact", "left-over"


@dataclass(frozen=True)
class Item:
    """Something that nothing reaches."""

    kind: str
    name: str
    about: str
    bytes: int
    path: Path | None = None
    ref: ArtifactRef | None = None


def find(reach: Reach) -> list[Item]:
    """What can go, in the order in which it goes."""
    return [*_ledgers(reach), *_work(reach), *_run_folders(reach), *_artifacts(reach), *_left_over(reach)]


def sweep(items: list[Item], reach: Reach) -> Iterator[tuple[Item, str]]:
    """Remove each item and yield it with an empty string, or with why it stays."""
    home, store = reach.home, reach.known.store
    remove_stale(home.path / TRASH)
    keys: dict[tuple[str, str], list[str]] = {}
    for key, ref in kept_results(home):
        if ref is not None:
            keys.setdefault(ident(ref), []).append(key)
    for item in items:
        try:
            if item.ref is not None:
                removed = _remove_artifact(home, store, item.ref, keys.get(ident(item.ref), []), reach.since)
            else:
                assert item.path is not None
                removed = _remove_folder(home, item, reach.since)
        except BusyError as error:
            yield item, f"in use: {error}"
            continue
        yield item, "" if removed else "was used meanwhile"


def sweeping(home: Home) -> FileLock:
    """The lock of a sweep: one at a time."""
    return FileLock(home.locks / "gc.lock")


def _artifacts(reach: Reach) -> Iterator[Item]:
    """Those that are not reached, each before what it was made from. None of a store at a URL."""
    store = reach.known.store
    if store.remote is not None:
        return
    free = {ident(ref): ref for ref in reach.artifacts if ident(ref) not in reach.kept}
    for ref in _dependents_first(free, reach):
        call = reach.known.manifest_call(ref)
        size, _ = measure(store.folder / ref.kind / ref.digest)
        yield Item(ARTIFACT, f"{ref.kind}/{ref.digest}", call.name if call else "", size, ref=ref)


def _dependents_first(free: dict[tuple[str, str], ArtifactRef], reach: Reach) -> list[ArtifactRef]:
    """Those artifacts so that none comes after one that it was made from."""
    order: list[ArtifactRef] = []
    seen: set[tuple[str, str]] = set()
    for start in sorted(free):
        stack = [(start, False)]
        while stack:  # depth first without recursion: a lineage may be long
            key, is_done = stack.pop()
            if is_done:
                order.append(free[key])
            elif key not in seen and key in free:
                seen.add(key)
                stack.append((key, True))
                call = reach.known.manifest_call(free[key])
                stack.extend((ident(ref), False) for ref in (call.refs() if call else []))
    return order[::-1]


def _ledgers(reach: Reach) -> Iterator[Item]:
    names = ledgers.unreached(reach)
    for folder in sorted(reach.home.ledger.glob("*/")):
        size, touched = measure(folder)
        if folder.name in names and touched < reach.since:
            yield Item(LEDGER, folder.name, "completions of a model that nothing reaches", size, folder)


def _work(reach: Reach) -> Iterator[Item]:
    keys = reach.kept_keys
    for folder in sorted(reach.home.work.glob("*/")):
        size, touched = measure(folder)
        if folder.name not in keys and touched < reach.since:
            yield Item(WORK, folder.name, "unfinished work of a stage", size, folder)


def _run_folders(reach: Reach) -> Iterator[Item]:
    for run in reach.runs:
        if run.state == UNFINISHED and run.touched < reach.since:
            yield Item(RUN, run.folder.name, "was cut off", run.bytes, run.folder)


def _left_over(reach: Reach) -> Iterator[Item]:
    """Damaged artifacts that were put aside."""
    store = reach.known.store
    if store.remote is None:
        for folder in sorted((store.folder / DAMAGED).glob("*/")):
            size, touched = measure(folder)
            if touched < reach.since:
                yield Item(LEFT, f"{DAMAGED}/{folder.name}", "damaged, put aside", size, folder)


def _remove_artifact(home: Home, store: Store, ref: ArtifactRef, keys: list[str], since: float) -> bool:
    """Under the locks of all keys under which a run could find it, forget those and remove the artifact."""
    held: list[FileLock] = []
    try:
        for key in sorted(keys):
            lock = stage_lock(home, key)
            lock.try_acquire()
            held.append(lock)
        if last_used(store, ref) >= since:
            return False
        for key in keys:
            kept = kept_result(home, key)
            if kept is not None and ident(kept) == ident(ref):
                os.unlink(home.results / key)
        return remove(store, ref, since)
    finally:
        for lock in held:
            lock.release()


def _remove_folder(home: Home, item: Item, since: float) -> bool:
    """Move a folder of the home to the trash and delete it there, unless it was written to since."""
    assert item.path is not None
    with contextlib.ExitStack() as held:
        for lock in _locks(home, item):
            held.enter_context(lock)
        if not item.path.is_dir() or _touched(item) >= since:
            return False
        if item.kind == RUN and item.name in {one.run for one in live_runs(home)}:
            return False
        make_folder(home.path / TRASH)
        shelf = make_temporary(home.path / TRASH)
        os.rename(item.path, shelf / item.path.name)
    remove_temporary(shelf)
    return True


def _locks(home: Home, item: Item) -> Iterator[FileLock]:
    """Held while a folder goes: the stage's for its work, the opening's and every writer's for a ledger."""
    assert item.path is not None
    if item.kind == WORK:
        yield stage_lock(home, item.name)
    elif item.kind == LEDGER:
        yield opening_lock(item.path)
        yield from map(FileLock, sorted(item.path.glob("*.lock")))


def _touched(item: Item) -> float:
    """When it was last written to. Of a ledger the journals count: its locks were taken just now."""
    assert item.path is not None
    if item.kind == LEDGER:
        return max((path.stat().st_mtime for path in item.path.glob("*.jsonl")), default=0.0)
    return measure(item.path)[1]
