"""Remembers the hashes of big files by path, size and modification time, so that they are read once.

The cache is a hint: losing it, or an entry to a concurrent writer, costs time only. A file that changed in
the last seconds is not remembered, because a further change might leave the same time behind.
"""

import contextlib
import json
import os
import time
from pathlib import Path

from reasoner.ids import file_hash
from reasoner.store.durable import make_folder, replace_file

SETTLED_NS = 2_000_000_000


class HashCache:
    """sha256 of files, remembered in the JSON file `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, list[int | str]] | None = None

    def sha256(self, path: Path, status: os.stat_result) -> str:
        """The hash of `path`, whose present stat is `status`."""
        known = self._load()
        name = str(path.resolve())
        stamp: list[int | str] = [status.st_size, status.st_mtime_ns]
        entry = known.get(name)
        if isinstance(entry, list) and len(entry) == 3 and entry[:2] == stamp:
            return str(entry[2])
        digest = file_hash(path)
        after = path.stat()
        unchanged = [after.st_size, after.st_mtime_ns] == stamp
        if unchanged and abs(time.time_ns() - status.st_mtime_ns) > SETTLED_NS:
            known[name] = [*stamp, digest]
            self._save()
        return digest

    def _load(self) -> dict[str, list[int | str]]:
        if self._known is None:
            self._known = {}
            with contextlib.suppress(OSError, ValueError):
                read = json.loads(self.path.read_bytes())
                self._known = read if isinstance(read, dict) else {}
        return self._known

    def _save(self) -> None:
        # A store on a read-only or full disk can still be read.
        with contextlib.suppress(OSError):
            make_folder(self.path.parent)
            replace_file(self.path, [json.dumps(self._known, sort_keys=True).encode()])
