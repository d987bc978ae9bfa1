"""Where the time of a step goes: monotonic seconds by part, such as sync, generate, verdict, logprobs, backward."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Parts:
    """Seconds by part since the last `take`. On a GPU give `synchronise`, so that queued work counts where it began."""

    def __init__(self, synchronise: Callable[[], None] | None = None) -> None:
        self._synchronise = synchronise
        self._seconds: dict[str, float] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block under `name`; blocks of one name add up. A failed block counts too."""
        self._wait()
        started = time.monotonic()
        try:
            yield
        finally:
            self._wait()
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - started

    def take(self) -> dict[str, float]:
        """What was counted, in seconds; starts anew."""
        taken, self._seconds = self._seconds, {}
        return taken

    def _wait(self) -> None:
        if self._synchronise is not None:
            self._synchronise()
