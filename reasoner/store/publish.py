"""Turns a temporary folder into an artifact in one step.

A reader sees the whole artifact or none: files are flushed, the manifest is written last, and one rename
makes the folder visible. A damaged artifact in the way is moved aside, never deleted.
"""

import contextlib
import errno
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reasoner.errors import InfrastructureError, UsageError
from reasoner.process.locks import FileLock
from reasoner.store.durable import make_folder, sync_file, sync_folder, write_new
from reasoner.store.manifest import MANIFEST, Manifest, entry_of, scan

DAMAGED = ".damaged"
LOCK = ".publish.lock"
ATTEMPTS = 20


def seal(folder: Path, kind: str, metadata: Mapping[str, Any]) -> Manifest:
    """Hash and flush the files of a temporary folder and write its manifest."""
    found = scan(folder)
    if not found:
        raise UsageError(f"the new {kind} artifact has no files: nothing was written to {folder}")
    if any(path == MANIFEST for path, _ in found):
        raise UsageError(f"an artifact cannot have a file {MANIFEST} of its own: choose another name")
    manifest = Manifest.make(kind, (entry_of(folder, path, status) for path, status in found), metadata)
    for path, _ in found:
        sync_file(folder / path)
    finish(folder, manifest)
    return manifest


def finish(folder: Path, manifest: Manifest) -> None:
    """Write the manifest of a folder whose files are on the disk, then flush the folder and those in it."""
    write_new(folder / MANIFEST, manifest.to_bytes())
    for parent, _, _ in os.walk(folder, topdown=False):
        sync_folder(Path(parent))


def place(folder: Path, root: Path, manifest: Manifest, problem: Callable[[], str | None]) -> Path:
    """Move a sealed folder to its place `root/kind/digest` and return that.

    `problem` checks what is in that place: an intact artifact is kept (the new folder stays where it is), a
    damaged one goes to `root/.damaged/`.
    """
    target = root / manifest.kind / manifest.digest
    make_folder(target.parent)
    if _rename(folder, target):
        return target
    # One at a time: two that found the damage would move each other's good artifact aside.
    with FileLock(root / LOCK, timeout=None):
        for _ in range(ATTEMPTS):
            if problem() is None:
                touch(target)
                return target
            set_aside(target, root)
            if _rename(folder, target):
                return target
    raise InfrastructureError(f"{target} cannot be replaced: others keep writing damaged files there")


def touch(target: Path) -> None:
    """Note on an artifact's folder that it was used now: housekeeping leaves alone what is in use."""
    with contextlib.suppress(OSError):  # a store may be read-only
        os.utime(target)


def _rename(folder: Path, target: Path) -> bool:
    """Make the artifact visible; false if something is in its place."""
    try:
        os.rename(folder, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
        return False
    sync_folder(target.parent)
    return True


def set_aside(target: Path, root: Path) -> Path | None:
    """Move a damaged artifact to `root/.damaged/`; None if somebody else was faster."""
    shelf = root / DAMAGED
    make_folder(shelf)
    place_there = shelf / f"{target.parent.name}-{target.name}-{uuid.uuid4().hex[:8]}"
    try:
        os.rename(target, place_there)
    except FileNotFoundError:
        return None
    sync_folder(shelf)
    sync_folder(target.parent)
    return place_there
