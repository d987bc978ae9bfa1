"""Who works at a shard: leases that expire, so that the work of a machine that has gone is taken over.

A lease is the highest of the numbered blobs `lease/0000`, `lease/0001`, …; taking one over is creating the next number,
which one process can do. A lease saves work from being done by two; that nothing is *recorded* twice does not rest on
it, nor on clocks, but on the journal (`job.Shard.append`).
"""

import json
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from reasoner.shards.place import Place

SECONDS = 60.0
"""How long a lease lasts without being renewed."""


@dataclass
class Lease:
    """A lease that is held; with `with` it is renewed by a thread until the block ends, then given back."""

    place: Place
    number: int
    worker: str
    seconds: float
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @classmethod
    def take(cls, place: Place, worker: str, seconds: float = SECONDS) -> "Lease | None":
        """The lease of the shard at `place`, or None while somebody else holds it."""
        last = _last(place)
        number = 0
        if last is not None:
            number, holder = last[0] + 1, last[1]
            if holder["until"] > time.time() and holder["worker"] != worker:
                return None
        lease = cls(place, number, worker, seconds)
        return lease if place.create(lease.name, lease._content()) else None

    @property
    def name(self) -> str:
        return f"lease/{self.number:04d}"

    def renew(self) -> None:
        """Hold it for `seconds` from now."""
        self.place.replace(self.name, self._content())

    def release(self) -> None:
        """Give it back: the next may take it at once."""
        self.place.replace(self.name, self._content(until=0.0))

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._renew_often, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()
        self.release()

    def _renew_often(self) -> None:
        while not self._stop.wait(self.seconds / 3):
            try:
                self.renew()
            except (
                Exception
            ):  # the store is away for a moment: at worst somebody else goes on from the journal
                continue

    def _content(self, until: float | None = None) -> bytes:
        end = time.time() + self.seconds if until is None else until
        return json.dumps({"worker": self.worker, "until": end}).encode()


def end_leases_of(place: Place, worker: str) -> None:
    """Free the shard at `place` if `worker`, who is known to be dead, holds it."""
    last = _last(place)
    if last is not None and last[1]["worker"] == worker and last[1]["until"] > time.time():
        Lease(place, last[0], worker, 0.0).release()


def _last(place: Place) -> tuple[int, dict[str, Any]] | None:
    names = [name for name in place.names("lease") if name.isdigit()]
    if not names:
        return None
    content = place.read(f"lease/{names[-1]}")
    return int(names[-1]), json.loads(content) if content else {"worker": "", "until": 0.0}
