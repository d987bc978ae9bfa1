"""Artifacts that point at a folder outside the store, such as a base model.

`pointer.json` holds the folder and each file's size, hash and time; the digest covers only the files.
"""

import dataclasses
import json
import os
from dataclasses import dataclass
from pathlib import Path

from reasoner.errors import UsageError
from reasoner.store.check import find_problem
from reasoner.store.durable import write_new
from reasoner.store.hashes import HashCache
from reasoner.store.manifest import (
    MANIFEST,
    POINTER,
    FileEntry,
    Manifest,
    check_relative,
    content_digest,
    scan,
)
from reasoner.store.publish import finish

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Pointer:
    """What stands in `pointer.json`."""

    folder: Path
    files: tuple[FileEntry, ...]


def scan_outside(folder: Path, hashes: HashCache) -> list[FileEntry]:
    """The entries of a folder's files: hidden ones left out, links followed. UsageError if there are none."""
    try:
        found = scan(folder, follow_links=True, hidden=False)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror}; give an existing folder") from None
    if not found:
        raise UsageError(f"{folder} has no files")
    return [
        FileEntry(path, status.st_size, hashes.sha256(folder / path, status), status.st_mtime_ns)
        for path, status in found
    ]


def write(draft: Path, folder: Path, manifest: Manifest) -> None:
    """Write `pointer.json` and the manifest to a temporary folder."""
    row = {
        "schema": SCHEMA,
        "folder": str(folder),
        "files": [dataclasses.asdict(entry) for entry in manifest.files],
    }
    write_new(draft / POINTER, json.dumps(row, indent=1, sort_keys=True).encode() + b"\n")
    finish(draft, manifest)


def is_pointer(target: Path) -> bool:
    """Whether an artifact's folder holds only a pointer."""
    try:
        return sorted(os.listdir(target)) in ([MANIFEST, POINTER], [POINTER])
    except OSError:
        return False


def read(target: Path) -> Pointer:
    """The pointer of an artifact's folder. ValueError, naming the file, if it cannot be used."""
    path = target / POINTER
    try:
        row = json.loads(path.read_bytes())
        if row["schema"] != SCHEMA:
            raise ValueError(f"{path} has schema {row['schema']}, this version reads {SCHEMA}")
        found = Pointer(Path(row["folder"]), tuple(FileEntry(**entry) for entry in row["files"]))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError):
        raise ValueError(f"{path} is not a pointer") from None
    for entry in found.files:
        check_relative(entry.path)
    return found


def differs(draft: Path, target: Path) -> bool:
    """Whether two pointers of one digest name different folders or times, or the old one cannot be read."""
    try:
        return read(draft) != read(target) or not (target / MANIFEST).is_file()
    except ValueError:
        return True


def find_problem_outside(
    target: Path, manifest: Manifest, hashes: HashCache, full: bool = False
) -> str | None:
    """What is wrong with the folder that an artifact points at, or None."""
    found = read(target)
    if content_digest(found.files) != manifest.digest:
        return f"{target / POINTER} was altered"
    return find_problem(found.folder, found.files, hashes, full=full, outside=True)
