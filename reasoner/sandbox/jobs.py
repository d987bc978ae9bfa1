"""What a sandbox is asked (`Program`, `Calls`) and what it answers (`Result`, `CallsResult`)."""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from reasoner.errors import UsageError


class Status(StrEnum):
    """How running an untrusted program, or one expression on it, ended."""

    OK = "ok"
    """There is a plain value."""
    EXCEPTION = "exception"
    """It raised; `type_name` and `message` say what. An early `sys.exit` counts as one."""
    SYNTAX_ERROR = "syntax_error"
    """It does not compile."""
    TIMEOUT = "timeout"
    """It was stopped at the limit of wall-clock or CPU time."""
    MEMORY = "memory"
    """It asked for more memory than the limit."""
    KILLED = "killed"
    """Its process ended before it answered: `os._exit`, a crash, a signal."""
    BAD_VALUE = "bad_value"
    """The answer is missing, not plain data or no usable number; `type_name` or `message` says what it is."""
    OUTPUT_LIMIT = "output_limit"
    """It sent more on the result channel than the limit."""
    HARNESS_ERROR = "harness_error"
    """The sandbox failed before the program ran. Nothing is known of the program; it is not its failure."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sandbox may use. Every limit is per sandbox, except memory and CPU time, which hold for each
    process, memory also for all processes together."""

    wall_seconds: float = 5.0
    """From the moment the program may run to its last answer."""
    call_seconds: float | None = None
    """The same for one expression, inside the total; None is no limit of its own."""
    cpu_seconds: int = 10
    memory_mib: int = 1024
    processes: int = 16
    """Processes and threads."""
    files: int = 64
    """Open files a process."""
    file_mib: int = 1
    """Size of one file."""
    tmp_mib: int = 16
    """Size of the private /tmp, with at most 64 files a MiB."""
    output_kib: int = 1024
    """Bytes of all answers together."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise UsageError(f"Limits.{name} is {value!r}: it must be a positive number")


@dataclass(frozen=True, slots=True)
class Program:
    """A program of thought: it assigns `answer`, or defines `solution()` that returns it."""

    source: str
    limits: Limits | None = None
    """None takes the limits of the sandbox."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Expressions to evaluate, in order, in one namespace, after the candidate and then the set-up ran."""

    source: str
    expressions: tuple[str, ...]
    setup: str = ""
    limits: Limits | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "expressions", tuple(self.expressions))


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a program or to one expression.

    `value` holds a plain value where `status` is ok: for a program the text `repr(float(answer))`, for an
    expression a tree of None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset and dict.
    """

    status: Status
    value: Any = None
    type_name: str = ""
    """The type of the exception, or of the value that is not plain."""
    message: str = ""
    seconds: float = 0.0
    """Wall-clock time since the program, or this expression, started."""

    @property
    def ok(self) -> bool:
        return self.status is Status.OK


@dataclass(frozen=True, slots=True)
class CallsResult:
    """The answers to `Calls`: `load` says how candidate and set-up ran, `calls` has a result an expression.

    Where loading failed, or the process ended early, the expressions that were not reached share the reason.
    """

    load: Result
    calls: tuple[Result, ...] = ()
    seconds: float = 0.0

    @property
    def status(self) -> Status:
        """The first status that is not ok, or ok."""
        return next((r.status for r in (self.load, *self.calls) if not r.ok), Status.OK)
