"""Writes that survive a crash: what a function here has returned from is on the disk.

Everything goes through `os.write`, `os.fsync`, `os.replace` and `os.rename`, which is where the crash tests
cut. Not covered: file systems that lie about fsync.
"""

import contextlib
import os
import uuid
from collections.abc import Iterable
from pathlib import Path

from reasoner.process.owner import owner_is_dead, owner_tag

BUFFER = 1 << 20


def write_all(fd: int, data: bytes) -> None:
    """Write every byte: `os.write` may write less, for example at 2 GiB or at a full disk."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def sync_file(path: Path) -> None:
    """Flush one file's content to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: Path) -> None:
    """Flush a folder's entries (names, renames) to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, each flushed into its parent; it may be there already."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder)
        sync_folder(folder.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write a file that no reader can see yet (in a temporary folder), and flush it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, pieces: Iterable[bytes]) -> None:
    """Write `pieces` to `path`: readers see the old content or the new, never a part.

    On an exception, also one that `pieces` raises, the old file stays as it was.
    """
    temporary = path.with_name(f".{path.name}.tmp-{owner_tag()}-{uuid.uuid4().hex[:8]}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        try:
            buffer = bytearray()
            for piece in pieces:
                buffer += piece
                if len(buffer) >= BUFFER:
                    write_all(fd, bytes(buffer))
                    buffer.clear()
            write_all(fd, bytes(buffer))
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    sync_folder(path.parent)
    _remove_stale(path)


def _remove_stale(path: Path) -> None:
    """Remove what killed processes left of their attempts to replace `path`."""
    prefix = f".{path.name}.tmp-"
    with contextlib.suppress(OSError):
        for name in os.listdir(path.parent):
            if name.startswith(prefix):
                with contextlib.suppress(ValueError, OSError):
                    if owner_is_dead(name.removeprefix(prefix).rpartition("-")[0]):
                        os.unlink(path.parent / name)
