"""Whether files are still what a manifest says."""

from collections.abc import Sequence
from pathlib import Path

from reasoner.errors import UsageError
from reasoner.ids import file_hash
from reasoner.store.hashes import HashCache
from reasoner.store.manifest import MANIFEST, FileEntry, scan

REHASH_LIMIT = 64 << 20
"""Files up to this size (bytes) are hashed at every check; larger ones are trusted by size and time."""


def find_problem(
    folder: Path, files: Sequence[FileEntry], hashes: HashCache, *, full: bool = False, outside: bool = False
) -> str | None:
    """The first thing wrong with `folder`, in words that name the file, or None if all is as it should be.

    `full` hashes every file. A large file whose time differs is hashed rather than refused: copying a store
    changes times. For a folder `outside` the store small files too are trusted by size and time, links are
    followed, and hidden files are not looked at.
    """
    if not folder.is_dir():
        return f"{folder} is missing"
    try:
        present = dict(scan(folder, follow_links=outside, hidden=not outside))
    except (OSError, UsageError) as error:
        return f"{folder} cannot be read: {error}"
    if not outside:
        present.pop(MANIFEST, None)
    for entry in files:
        path = folder / entry.path
        status = present.pop(entry.path, None)
        if status is None:
            return f"{path} is missing"
        if status.st_size != entry.size:
            return f"{path} has {status.st_size} bytes instead of {entry.size}"
        try:
            if full or (entry.size <= REHASH_LIMIT and not outside):
                digest = file_hash(path)
            elif status.st_mtime_ns != entry.mtime_ns:
                digest = hashes.sha256(path, status)
            else:
                continue
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        if digest != entry.sha256:
            return f"{path} was altered"
    if present:
        return f"{folder / min(present)} does not belong to it"
    return None
