"""Where the time of a step goes, by a monotonic clock.

Parts are exclusive: while an inner part runs, the outer one stands still, so that their sum is at most the
step's wall time and the rest is `other`. On CUDA give `synchronize=torch.cuda.synchronize`, since a kernel's
time would otherwise be counted in whatever part waits for it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reasoner.records import Record


class Part(StrEnum):
    """What a step does."""

    SYNC = "sync"
    """Saving the adapter and loading it into the engine."""
    GENERATE = "generate"
    """Sampling completions."""
    VERDICT = "verdict"
    """Verifying and rewarding."""
    LOGPROBS = "logprobs"
    """Forward passes without a gradient: reference or old log-probabilities."""
    FORWARD_BACKWARD = "forward_backward"
    """The loss and its gradient."""
    OPTIMISER = "optimiser"
    """Clipping the gradient and stepping."""
    SLEEP = "sleep"
    """Handing the card to the other side and back."""
    CHECKPOINT = "checkpoint"
    """Writing what a resumed run needs."""


@dataclass(frozen=True, slots=True)
class StepTimes(Record):
    """Seconds of one step: `wall`, each part, and `other` (wall less all parts)."""

    wall: float
    parts: dict[str, float]

    @property
    def other(self) -> float:
        return self.wall - sum(self.parts.values())

    def share(self, part: Part) -> float:
        """The part's share of the wall time."""
        return self.parts.get(part.value, 0.0) / self.wall if self.wall > 0 else 0.0

    def metrics(self) -> dict[str, float]:
        """`time/<part>` in seconds, `time/wall` and `time/other`."""
        named = {f"time/{name}": seconds for name, seconds in self.parts.items()}
        return {**named, "time/other": self.other, "time/wall": self.wall}


class Timers:
    """A stopwatch a part. Use it from one thread."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, synchronize: Callable[[], Any] | None = None
    ) -> None:
        self._clock = clock
        self._synchronize = synchronize
        self._stack: list[Part] = []
        self._seconds: dict[str, float] = {}
        self._start = self._mark = self._clock()

    @contextmanager
    def part(self, part: Part) -> Iterator[None]:
        """Count the block as `part`; an inner part of the block is not counted in it."""
        self._switch()
        self._stack.append(part)
        try:
            yield
        finally:
            self._switch()
            self._stack.pop()

    def take(self) -> StepTimes:
        """The times since the last call (or the start), and a fresh start."""
        self._switch()
        now = self._mark
        times = StepTimes(now - self._start, self._seconds)
        self._start, self._seconds = now, {}
        return times

    def _switch(self) -> None:
        """Give the time since the last switch to the innermost running part."""
        if self._synchronize is not None:
            self._synchronize()
        now = self._clock()
        if self._stack:
            name = self._stack[-1].value
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._mark
        self._mark = now


def cuda_timers() -> Timers:
    """Timers that wait for the card's work at each switch, where there is a card."""
    import torch

    return Timers(synchronize=torch.cuda.synchronize if torch.cuda.is_available() else None)
