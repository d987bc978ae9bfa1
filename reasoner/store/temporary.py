"""Temporary folders inside the store (the same file system, so that a rename can publish them).

Their names say who made them. Those of dead processes are removed when a store is opened, those of living
ones are kept, and those of owners that cannot be judged from here are kept for a week.
"""

import contextlib
import os
import shutil
import time
import uuid
from pathlib import Path

from reasoner.process.owner import owner_is_dead, owner_tag

PREFIX = ".tmp-"
UNKNOWN_OWNER_SECONDS = 7 * 24 * 3600.0


def make_temporary(root: Path) -> Path:
    """A new empty folder `.tmp-<owner>-<random>` under `root`."""
    path = root / f"{PREFIX}{owner_tag()}-{uuid.uuid4().hex[:8]}"
    os.mkdir(path)
    return path


def remove_temporary(path: Path) -> None:
    """Remove a temporary folder; it may be gone already."""
    shutil.rmtree(path, ignore_errors=True)


def remove_stale(root: Path) -> list[Path]:
    """Remove the temporary folders under `root` that nobody works on any more; returns them."""
    removed = []
    with contextlib.suppress(OSError):
        for path in sorted(root.glob(f"{PREFIX}*")):
            if _is_stale(path):
                remove_temporary(path)
                removed.append(path)
    return removed


def _is_stale(path: Path) -> bool:
    tag = path.name.removeprefix(PREFIX).rpartition("-")[0]
    try:
        if owner_is_dead(tag):
            return True
    except ValueError:
        pass
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > UNKNOWN_OWNER_SECONDS and not _owner_lives_here(tag)
    return False


def _owner_lives_here(tag: str) -> bool:
    """Whether the tag is of a process of this machine and namespace, which then is alive."""
    return tag.split("-")[2:] == owner_tag().split("-")[2:]
