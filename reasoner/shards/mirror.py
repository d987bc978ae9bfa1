"""A ledger that machines with disks of their own share through an object store (`REASONER_LEDGER`, an fsspec URL).

Every journal is written by one process of one machine; the store holds it as immutable pieces, each named by its first
byte's offset. Opening fetches what others have written; closing, and a flush now and then, sends what is new. A
journal that another machine writes is a file `from-<origin>.jsonl` here; a piece that a kill cut off is fetched again.
Where two machines have made the same completion, each machine reads its own first.

Not covered: seeing what others write while the ledger is open, and keeping two machines from making the same at the
same time (that is what `job` does).
"""

import contextlib
import logging
import os
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

from reasoner.errors import InfrastructureError
from reasoner.home import Home
from reasoner.ledger.ledger import Ledger
from reasoner.process.locks import FileLock
from reasoner.records import Completion, GenerationRequest
from reasoner.shards.place import Place
from reasoner.store.durable import make_folder, replace_file, write_all

log = logging.getLogger(__name__)

PUSH_SECONDS = 30.0
FOREIGN = "from-"


def open_ledger(home: Home, name: str) -> Ledger:
    """The ledger `name` of a home, through the object store that it shares with other homes, if one is set."""
    folder = home.ledger / name
    return (
        SharedLedger(folder, Place(f"{home.shared_ledger}/{name}")) if home.shared_ledger else Ledger(folder)
    )


class SharedLedger(Ledger):
    """A ledger in `folder` that is fetched from, and sent to, `place`. Raises InfrastructureError as Ledger does."""

    def __init__(self, folder: str | Path, place: Place) -> None:
        self.place = place
        self._pushed = time.monotonic()
        pull(Path(folder), place)
        super().__init__(folder)
        self._origin = _origin(self._journal_path())
        self.push()

    def append(self, batch: Iterable[tuple[str, GenerationRequest, Completion]]) -> int:
        """As Ledger.append; now and then what is new is sent."""
        new = super().append(batch)
        if time.monotonic() - self._pushed >= PUSH_SECONDS:
            # What is on this disk is kept; the next push, here or of the next run, sends it.
            with contextlib.suppress(InfrastructureError):
                self.push()
        return new

    def push(self) -> int:
        """Send what this process has added; returns how many bytes."""
        self._pushed = time.monotonic()
        path = self._journal_path()
        sent = 0
        names = self.place.names(self._origin)
        if names:
            last = self.place.read(f"{self._origin}/{names[-1]}")
            sent = int(names[-1]) + len(last or b"")
        with path.open("rb") as file:
            file.seek(sent)
            data = file.read()
        if data:
            self.place.create(f"{self._origin}/{sent:015d}", data)
        return len(data)

    def close(self) -> None:
        """As Ledger.close, after what is new was sent. Raises InfrastructureError if that can't be done."""
        try:
            if self._own is not None:
                self.push()
        finally:
            super().close()

    def _journal_path(self) -> Path:
        assert self._own is not None
        return self._own.path


def pull(folder: Path, place: Place) -> int:
    """Fetch what other machines have added since; returns how many bytes. Raises InfrastructureError."""
    make_folder(folder)
    own = {path.read_text(encoding="utf-8") for path in folder.glob("*.origin")}
    fetched = 0
    with FileLock(folder / "pull.lock", timeout=None):
        for origin in place.names(""):
            if origin not in own and origin != "probe":
                fetched += _fetch(folder / f"{FOREIGN}{origin}.jsonl", origin, place)
    return fetched


def _fetch(path: Path, origin: str, place: Place) -> int:
    """Append the pieces that `path` lacks."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        size = os.fstat(fd).st_size
        starts = [int(name) for name in place.names(origin)]
        # A kill while a piece was appended leaves an end that is not where one begins.
        last = max((start for start in starts if start <= size), default=0)
        fetched = 0
        for start in (start for start in starts if start >= last):
            data = place.read(f"{origin}/{start:015d}") or b""
            if start + len(data) <= size:
                continue
            os.ftruncate(fd, start)
            write_all(fd, data)
            fetched += len(data)
        if fetched:
            os.fsync(fd)
        return fetched
    finally:
        os.close(fd)


def _origin(journal: Path) -> str:
    """The name under which this journal of this machine is known to the others, made once."""
    path = journal.with_suffix(".origin")
    if not path.exists():
        replace_file(path, [uuid.uuid4().hex.encode()])
    return path.read_text(encoding="utf-8")
