"""A candidate that stays loaded while its trusted parent asks for one value after another."""

import time
from collections.abc import Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING, Any

from reasoner.sandbox.answers import failure_of, value_of
from reasoner.sandbox.jobs import Limits, Result, Status
from reasoner.sandbox.process import Child, Stopped
from reasoner.sandbox.values import BadTreeError, decode

if TYPE_CHECKING:
    from reasoner.sandbox.sandbox import Sandbox

MAX_STRAY_LINES = 16
"""Answers to no question, which only the program itself can have written."""


class Session:
    """One sandbox that has run a candidate and then its set-up; `load` says how that went.

    The wall-clock limit counts from the moment the candidate may run. Once the process has stopped, every
    further question gets the reason, and no answer given before is lost. Used by one thread.
    """

    def __init__(
        self,
        sandbox: "Sandbox",
        source: str,
        *,
        setup: str = "",
        limits: Limits | None = None,
        cancel: Event | None = None,
    ) -> None:
        self.limits = limits or sandbox.limits
        self._count = 0
        self._child: Child | None = None
        started = time.monotonic()
        self._deadline = started + self.limits.wall_seconds
        job = {"mode": "serve", "source": source, "setup": setup}
        try:
            self._child = sandbox.start(job, self.limits, cancel=cancel)
            started = time.monotonic()
            self._deadline = started + self.limits.wall_seconds
            line = self._child.receive(self._deadline)
            seconds = time.monotonic() - started
            self.load = failure_of(line, seconds) or Result(Status.OK, seconds=seconds)
        except Stopped as stopped:
            self.load = Result(stopped.status, message=stopped.message, seconds=time.monotonic() - started)
        self.stopped: Result | None = None if self.load.ok else self.load
        """Why no further question can be answered, or None."""

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        if self._child is not None:
            self._child.kill()

    @property
    def seconds_left(self) -> float:
        """Wall-clock time until the candidate's total is used up."""
        return max(self._deadline - time.monotonic(), 0.001)

    @property
    def pid(self) -> int | None:
        """The outermost process of the sandbox, or None where none could be started."""
        return None if self._child is None else self._child.pid

    def evaluate(self, expression: str) -> Result:
        """The plain value of an expression in the candidate's namespace."""
        result, line = self._ask({"expression": expression})
        return result if line is None else value_of(line, result.seconds)

    def call(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Result, list[Any] | None]:
        """Call the candidate's `name` with plain values.

        Returns the result, in which an iterator has become `IteratedValues`, and the positional arguments as
        they are afterwards where the call changed them, else None.
        """
        result, line = self._ask({"name": name, "args": tuple(args), "kwargs": dict(kwargs)})
        if line is None:
            return result, None
        try:
            changed = decode(line["a"]) if "a" in line else None
        except (BadTreeError, RecursionError):
            changed = None
        if isinstance(changed, tuple) and len(changed) == len(args):
            return value_of(line, result.seconds), list(changed)
        return value_of(line, result.seconds), None

    def _ask(self, question: dict[str, Any]) -> tuple[Result, dict[str, Any] | None]:
        """Send a question; its line, or None where the result already says why there is none."""
        if self.stopped is not None or self._child is None:
            return self.stopped or self.load, None
        self._count += 1
        started = time.monotonic()
        deadline = self._deadline
        if self.limits.call_seconds is not None:
            deadline = min(deadline, started + self.limits.call_seconds)
        try:
            self._child.send(question | {"id": self._count})
            line = self._child.receive(deadline)
            for _ in range(MAX_STRAY_LINES):
                if line.get("id") == self._count:
                    break
                line = self._child.receive(deadline)
            else:
                raise Stopped(Status.BAD_VALUE, "the program writes on the result channel")
        except Stopped as stopped:
            self.stopped = Result(stopped.status, message=stopped.message, seconds=time.monotonic() - started)
            return self.stopped, None
        return Result(Status.OK, seconds=time.monotonic() - started), line
