"""Where the time of a step goes, by a monotonic clock.

Parts exclude each other: while an inner part runs, the outer one stands still, so that their sum is at most the
step's wall time and the rest is `other`. On a GPU give `synchronise=torch.cuda.synchronize`, so that queued work
counts where it began.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reasoner.records import Record


class Part(StrEnum):
    """What a step does. A method may count parts of its own beside these."""

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

    def share(self, part: str) -> float:
        """The part's share of the wall time."""
        return self.parts.get(str(part), 0.0) / self.wall if self.wall > 0 else 0.0

    def metrics(self) -> dict[str, float]:
        """`time/<part>` in seconds, `time/wall` and `time/other`."""
        named = {f"time/{name}": seconds for name, seconds in self.parts.items()}
        return {**named, "time/other": self.other, "time/wall": self.wall}


class Parts:
    """Seconds by part since the last `take`. Use it from one thread."""

    def __init__(
        self,
        synchronise: Callable[[], Any] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._synchronise = synchronise
        self._stack: list[str] = []
        self._seconds: dict[str, float] = {}
        self.whole = StepTimes(0.0, {})
        """All that was ever taken."""
        self._start = self._mark = self._clock()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Count the block under `name`, less its inner parts; blocks of one name add up. A failed one counts too."""
        self._switch()
        self._stack.append(str(name))
        try:
            yield
        finally:
            self._switch()
            self._stack.pop()

    def take(self) -> dict[str, float]:
        """What was counted, in seconds; starts anew."""
        return self.take_step().parts

    def take_step(self) -> StepTimes:
        """What was counted, with the wall time since the last take; starts anew."""
        self._switch()
        now = self._mark
        times = StepTimes(now - self._start, self._seconds)
        known = self.whole.parts
        parts = {name: known.get(name, 0.0) + times.parts.get(name, 0.0) for name in {**known, **times.parts}}
        self.whole = StepTimes(self.whole.wall + times.wall, parts)
        self._start, self._seconds = now, {}
        return times

    def _switch(self) -> None:
        """Give the time since the last switch to the innermost running part."""
        if self._synchronise is not None:
            self._synchronise()
        now = self._clock()
        if self._stack:
            name = self._stack[-1]
            self._seconds[name] = self._seconds.get(name, 0.0) + now - self._mark
        self._mark = now


def device_parts(device: str = "cuda") -> Parts:
    """Parts that wait for the card's work at each switch, where `device` is a card and there is one."""
    import torch

    return Parts(torch.cuda.synchronize if device == "cuda" and torch.cuda.is_available() else None)
