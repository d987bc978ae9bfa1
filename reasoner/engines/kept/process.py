"""A kept engine's process as its client sees it."""

import contextlib
from pathlib import Path

from reasoner.engines.engine_process import CLOSE_SECONDS, DEATH_SECONDS
from reasoner.engines.kept.record import Record
from reasoner.engines.wire import Wire
from reasoner.process.log_tail import last_words, tail
from reasoner.process.waiting import wait_until

LEAVE_SECONDS = 30.0
"""How long an engine may take to unload its adapters; one that takes longer is ended."""


class KeptProcess:
    """The connection to it, which holds it: closed without `leave`, the engine ends."""

    def __init__(self, wire: Wire, record: Record, log_start: int) -> None:
        self.wire = wire
        self.record = record
        self._log_start = log_start

    @property
    def pid(self) -> int:
        return self.record.pid

    @property
    def alive(self) -> bool:
        """Whether it can be talked to."""
        return not self.wire.hung_up and not self.record.gone

    def death(self) -> str:
        """How the process ended, with the last lines that it wrote and its log."""
        ended = wait_until(lambda: self.record.gone, DEATH_SECONDS)
        what = "ended" if ended else "closed its connection"
        return f"the {self.record.about} {what}. {last_words(Path(self.record.log), self._log_start)}"

    def last_lines(self, count: int) -> list[str]:
        """The last lines that it wrote for this client, at most `count`."""
        return tail(Path(self.record.log), self._log_start, count)

    def leave(self, idle_seconds: float) -> None:
        """Leave the engine, as good as new, to the next client; one that can't be left is ended."""
        try:
            self.wire.limit(LEAVE_SECONDS)
            self.wire.send({"op": "leave", "idle_seconds": idle_seconds})
            while (message := self.wire.receive()) is not None and message["op"] != "left":
                continue  # the rest of a cancelled generation
        except OSError:
            message = None
        self.wire.close()
        if message is None:
            self.record.end()

    def close(self, *, polite: bool = True, grace: float | None = None) -> None:
        """End the process and all that it started, and wait until it is gone. Polite: let it end by itself first.

        The keeper has a grace of its own. A `receive` that waits in another thread returns None.
        """
        if polite:
            with contextlib.suppress(OSError):
                self.wire.send({"op": "close"})
                wait_until(lambda: self.record.gone, CLOSE_SECONDS)
        self.wire.close()
        self.record.end()
