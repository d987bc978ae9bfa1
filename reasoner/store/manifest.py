"""What a stored artifact consists of: its files with their hashes, and how it came to be.

The digest covers the files' paths, sizes and hashes. It does not cover the metadata, times or the place.
"""

import dataclasses
import json
import math
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any

from reasoner.errors import UsageError
from reasoner.ids import canonical, content_hash, file_hash

SCHEMA = 1
MANIFEST = "manifest.json"
POINTER = "pointer.json"


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file of an artifact. `mtime_ns` is its time at publication, a cheap check for large files."""

    path: str
    """Relative, with forward slashes."""
    size: int
    sha256: str
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What stands in an artifact's `manifest.json`."""

    kind: str
    digest: str
    files: tuple[FileEntry, ...]
    metadata: dict[str, Any]
    created: str
    """When it was published, UTC, ISO 8601."""
    outside: bool = False
    """Whether the files lie in a folder outside the store, which `pointer.json` names."""
    schema: int = SCHEMA

    @classmethod
    def make(
        cls, kind: str, files: Iterable[FileEntry], metadata: Mapping[str, Any], *, outside: bool = False
    ) -> "Manifest":
        """A manifest of `files` with its digest and today's time."""
        files = tuple(sorted(files, key=lambda entry: entry.path))
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(kind, content_digest(files), files, plain_metadata(metadata), created, outside)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self.files)

    def to_bytes(self) -> bytes:
        text = json.dumps(
            dataclasses.asdict(self), indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False
        )
        return text.encode() + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """Read a manifest. ValueError, in words, if it is not one or contradicts itself."""
        try:
            row = json.loads(data)
            if row["schema"] != SCHEMA:
                raise ValueError(f"has schema {row['schema']}, this version reads {SCHEMA}")
            row["files"] = tuple(FileEntry(**entry) for entry in row["files"])
            manifest = cls(**row)
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"is not a manifest ({type(error).__name__})") from None
        for entry in manifest.files:
            check_relative(entry.path)
        if content_digest(manifest.files) != manifest.digest:
            raise ValueError("was altered: its list of files does not have its digest")
        return manifest


def content_digest(files: Iterable[FileEntry]) -> str:
    """sha256 of the canonical JSON of the sorted list of [path, size, sha256]."""
    return content_hash(sorted([entry.path, entry.size, entry.sha256] for entry in files))


def check_relative(path: str) -> None:
    """ValueError unless `path` stays inside the folder that it is joined to."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path:
        raise ValueError(f"names a file outside its folder: {path!r}")


def scan(
    folder: Path, *, follow_links: bool = False, hidden: bool = True
) -> list[tuple[str, os.stat_result]]:
    """Every file below `folder`, sorted: its relative posix path and stat. Empty folders do not count.

    Links and special files are a `UsageError`, or followed with `follow_links`. Without `hidden`, names that
    begin with a dot are left out.
    """
    found = []
    for parent, folders, names in os.walk(folder, followlinks=follow_links, onerror=_reraise):
        if not hidden:
            folders[:] = [name for name in folders if not name.startswith(".")]
            names = [name for name in names if not name.startswith(".")]
        for name in [*names, *folders]:
            path = Path(parent, name)
            status = path.stat() if follow_links else path.lstat()
            if stat.S_ISDIR(status.st_mode):
                continue
            if not stat.S_ISREG(status.st_mode):
                raise UsageError(f"{path} is a link or a special file: copy its content into the artifact")
            found.append((path.relative_to(folder).as_posix(), status))
    return sorted(found, key=lambda item: item[0])


def _reraise(error: OSError) -> None:
    raise error


def entry_of(folder: Path, path: str, status: os.stat_result) -> FileEntry:
    """The entry of a file, hashed now."""
    return FileEntry(path, status.st_size, file_hash(folder / path), status.st_mtime_ns)


def plain_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """JSON data of metadata. Paths become text and numbers that JSON lacks become "nan" or "inf".

    A NaN in a metric must not cost the training run that it describes. Other objects are a `UsageError`.
    """
    try:
        plain = canonical(_softened(metadata))
    except TypeError as error:
        raise UsageError(f"artifact metadata: {error}; give numbers, text, lists and mappings") from None
    assert isinstance(plain, dict)
    return plain


def _softened(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): _softened(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_softened(item) for item in value]
    return value
