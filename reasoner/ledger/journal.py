"""One journal file: reading it with its damage, and appending to it.

A torn tail is what a killed writer leaves; its owner cuts it off, readers pass over it. A bad line in the
middle is reported and skipped: what it held counts as not there. A batch is one write and one fsync, so a
crash loses at most the batch in flight.
"""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from reasoner.errors import InfrastructureError
from reasoner.ledger.lines import body_of, line_length
from reasoner.store.durable import sync_folder, write_all

log = logging.getLogger(__name__)

READ_BUFFER = 1 << 20
FIRST_READ = 4096


@dataclass(frozen=True, slots=True)
class Scan:
    """What reading a journal found besides its rows."""

    valid_end: int
    """Offset behind the last good line."""
    size: int
    damaged: int
    """Bad lines with a good line after them."""


class Journal:
    """The file `path`; `writable` for its one writer, who has locked it."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        self.path = path
        self.writable = writable
        new = writable and not path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND if writable else os.O_RDONLY
        self._fd = os.open(path, flags, 0o666)
        self._end = os.fstat(self._fd).st_size
        self._clean = True
        self.scanned: Scan | None = None
        if new:
            sync_folder(path.parent)

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Offset and bytes of every good row. At the end `scanned` is set and damage has been logged."""
        offset = valid_end = damaged = bad = 0
        with open(self.path, "rb", buffering=READ_BUFFER) as handle:
            for line in handle:
                body = body_of(line)
                if body is None:
                    bad += 1
                else:
                    if bad:
                        log.warning(
                            "%s: %d damaged line(s) before byte %d are skipped: their completions are owed",
                            self.path, bad, offset,
                        )  # fmt: skip
                        damaged, bad = damaged + bad, 0
                    valid_end = offset + len(line)
                    yield offset, body
                offset += len(line)
        self.scanned = Scan(valid_end, offset, damaged)

    def cut_tail(self) -> int:
        """Cut off what follows the last good line (after `rows`); returns how many bytes."""
        assert self.scanned is not None and self.writable
        torn = self.scanned.size - self.scanned.valid_end
        if torn:
            log.warning("%s: cut off %d bytes after the last good line", self.path, torn)
            os.ftruncate(self._fd, self.scanned.valid_end)
            os.fsync(self._fd)
        self._end = self.scanned.valid_end
        return torn

    def append(self, data: bytes) -> int:
        """Append whole lines in one write and flush them; returns the offset of the first.

        After an error nothing of them stays. Raises InfrastructureError.
        """
        start = self._end
        try:
            if not self._clean:
                os.ftruncate(self._fd, start)
            self._clean = False
            write_all(self._fd, data)
            os.fsync(self._fd)
        except OSError as error:
            self._undo(start)
            raise InfrastructureError(
                f"cannot append to {self.path}: {error.strerror}. Free some space and run the same "
                "command again: what was kept is kept."
            ) from error
        self._clean = True
        self._end = start + len(data)
        return start

    def read(self, offset: int) -> bytes | None:
        """The bytes of the row at `offset`, or None if it was damaged since it was indexed."""
        line = os.pread(self._fd, FIRST_READ, offset)
        length = line_length(line)
        if length is None:
            return None
        if length > len(line):
            line += os.pread(self._fd, length - len(line), offset + len(line))
        return body_of(line[:length])

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _undo(self, start: int) -> None:
        try:
            os.ftruncate(self._fd, start)
            self._clean = True
        except OSError:
            log.warning("%s: a torn tail after byte %d could not be cut off yet", self.path, start)
