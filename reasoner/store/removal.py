"""Taking artifacts out of a local store while runs use it.

A folder's own time says when its artifact was made or last used (`publish.touch`), and the lock of publishing is held
while it is asked: so an artifact that a run has just found or made again stays.
"""

import os
from pathlib import Path

from reasoner.errors import InfrastructureError, UsageError
from reasoner.process.locks import FileLock
from reasoner.records import ArtifactRef
from reasoner.store.durable import sync_folder
from reasoner.store.publish import LOCK, touch
from reasoner.store.store import Store
from reasoner.store.temporary import make_temporary, remove_temporary


def touch_ref(ref: ArtifactRef) -> None:
    """Note that the artifact behind a reference is in use now. Nothing happens where it lies at a URL."""
    if "://" not in ref.uri:
        touch(Path(ref.uri))


def last_used(store: Store, ref: ArtifactRef) -> float:
    """When an artifact was made or last used by a run, in seconds since the epoch; 0 if it is gone."""
    try:
        return _place(store, ref).stat().st_mtime
    except OSError:
        return 0.0


def remove(store: Store, ref: ArtifactRef, unused_since: float) -> bool:
    """Remove an artifact unless it was made or used since that moment; whether it was removed.

    Readers see all of it or nothing; a crash leaves a temporary folder, which the next opening of the store removes.
    Raises UsageError for a store at a URL, InfrastructureError where the disk refuses.
    """
    if store.remote is not None:
        raise UsageError(f"artifacts at {store.uri} are not removed from here: other machines may use them")
    target = _place(store, ref)
    try:
        with FileLock(store.folder / LOCK, timeout=None):
            if not target.is_dir() or last_used(store, ref) >= unused_since:
                return False
            shelf = make_temporary(store.folder)
            try:
                os.rename(target, shelf / target.name)
            except OSError:
                remove_temporary(shelf)
                raise
            sync_folder(target.parent)
    except OSError as error:
        raise InfrastructureError(
            f"cannot remove {target}: {error.strerror}. Its folder must be writable."
        ) from error
    remove_temporary(shelf)
    return True


def _place(store: Store, ref: ArtifactRef) -> Path:
    return store.folder / ref.kind / ref.digest
