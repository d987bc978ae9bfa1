"""The child program of the math pool: `python -m reasoner.verifiers.worker`, with a socket as standard input.

Two processes: this one loads sympy and math-verify once and supervises; a fork of it judges. A judge that
runs over its wall-clock limit or dies is killed with SIGKILL and forked anew in milliseconds, and the row is
tried once more. What hangs or kills both judges is the response's doing (`incorrect`), unless the gold alone
does it too (`unscored`).

`opinion` in the settings chooses who judges: our verifier, or math-verify alone as the second opinion of an audit.

Protocol, one JSON object a line: settings in, `{"ready": true}` out, then rows in and verdicts out, one for
one. Ends when the socket does; the judge dies with its supervisor.
"""

import contextlib
import ctypes
import functools
import gc
import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

from reasoner.records import Outcome, Verdict
from reasoner.verifiers.math import MathItem, judge
from reasoner.verifiers.policy import MathPolicy
from reasoner.verifiers.second_opinion import math_verify_alone

RECYCLE_ROWS = 2000
"""Rows after which a judge is forked anew: sympy's caches only grow."""
MEMORY = 2 << 30
"""Address space of a judge in bytes."""
_PR_SET_PDEATHSIG = 1
_WARM_UP = (
    (r"\frac{1}{2}", r"so \boxed{\frac{2}{4}}"),
    (r"\sqrt{2}+1", r"$1+\sqrt{2}$"),
    ("x^2+2x", r"\boxed{x(x+2)}"),
    (r"x \le 3", r"$(-\infty, 3]$"),
    (r"\begin{pmatrix}1\\2\end{pmatrix}", r"$\begin{pmatrix}1\\3\end{pmatrix}$"),
    ("y=2x+1", r"\boxed{y-2x=1}"),
)


Decide = Callable[[MathItem], Verdict]


class Judge:
    """A forked process that judges one row at a time."""

    def __init__(self, decide: Decide) -> None:
        self.rows = 0
        self._socket, theirs = socket.socketpair()
        parent = os.getpid()
        self._pid = os.fork()
        if self._pid == 0:
            self._socket.close()
            _judge_forever(theirs, decide, parent)
        theirs.close()
        self._lines = self._socket.makefile("rb")

    def ask(self, row: bytes, timeout: float) -> dict[str, Any]:
        """The judge's verdict on a row. Raises TimeoutError, or ConnectionError where the judge died."""
        self._socket.settimeout(timeout)
        self._socket.sendall(row)
        reply = self._lines.readline()
        if not reply.endswith(b"\n"):
            raise ConnectionError("the judge died")
        self.rows += 1
        return dict(json.loads(reply))

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        self._lines.close()
        self._socket.close()


class Supervisor:
    """Judges rows within a time limit whatever they hold."""

    def __init__(self, decide: Decide, timeout: float) -> None:
        self._decide, self._timeout = decide, timeout
        self._judge: Judge | None = None
        self._poisoned: dict[str, bool] = {}

    def verdict(self, row: bytes) -> dict[str, Any]:
        """The verdict on one row as plain data."""
        start = time.monotonic()
        reason = "timeout"
        for _ in range(2):
            try:
                return self._ask(row) | {"seconds": time.monotonic() - start}
            except TimeoutError:
                reason = "timeout"
            except ConnectionError:
                reason = "crash"
        gold = json.loads(row)["gold"]
        outcome, why = (
            (Outcome.UNSCORED, f"gold_{reason}") if self._poison(gold) else (Outcome.INCORRECT, reason)
        )
        return Verdict(outcome, why, None, time.monotonic() - start).to_row()

    def _poison(self, gold: str) -> bool:
        """Whether the gold alone hangs or kills a judge."""
        if gold not in self._poisoned:
            try:
                self._ask(_line({"gold": gold, "prediction": r"\boxed{0}"}))
                self._poisoned[gold] = False
            except (TimeoutError, ConnectionError):
                self._poisoned[gold] = True
        return self._poisoned[gold]

    def _ask(self, row: bytes) -> dict[str, Any]:
        if self._judge is not None and self._judge.rows >= RECYCLE_ROWS:
            self.close()
        if self._judge is None:
            self._judge = Judge(self._decide)
        try:
            return self._judge.ask(row, self._timeout)
        except (TimeoutError, ConnectionError, json.JSONDecodeError) as error:
            self.close()
            raise (
                error if not isinstance(error, json.JSONDecodeError) else ConnectionError(str(error))
            ) from error

    def close(self) -> None:
        if self._judge is not None:
            self._judge.kill()
            self._judge = None


def _judge_forever(connection: socket.socket, decide: Decide, parent: int) -> None:
    """The judge's whole life; never returns."""
    try:
        _die_with(parent)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for line in connection.makefile("rb"):
            row = json.loads(line)
            item = MathItem(row["gold"], row["prediction"])
            connection.sendall(_line(_safe_verdict(item, decide).to_row()))
    finally:
        os._exit(0)


def _die_with(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends (Linux); elsewhere the socket's end does it
    later.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _safe_verdict(item: MathItem, decide: Decide) -> Verdict:
    """The verdict on a row; what a row can do to this process is the response's doing, a bug of ours is
    not.
    """
    try:
        return decide(item)
    except MemoryError:
        return Verdict(Outcome.INCORRECT, "memory")
    except RecursionError:
        return Verdict(Outcome.INCORRECT, "too_deep")
    except Exception as error:
        print(f"judge failed: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr, flush=True)
        return Verdict(Outcome.UNSCORED, "error")


def _line(row: dict[str, Any]) -> bytes:
    return json.dumps(row).encode() + b"\n"


def main() -> None:
    """Serve one pool until it closes the socket."""
    connection = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # nothing that a library prints may reach the protocol
    lines = connection.makefile("rb")
    settings = json.loads(lines.readline())
    policy = MathPolicy.model_validate(settings["policy"])
    if settings["opinion"] == "math_verify":
        decide: Decide = math_verify_alone
    else:
        decide = functools.partial(judge, policy=policy)
    for gold, prediction in _WARM_UP:
        decide(MathItem(gold, prediction))
    gc.collect()
    gc.freeze()
    supervisor = Supervisor(decide, settings["timeout"])
    try:
        connection.sendall(_line({"ready": True}))
        for row in lines:
            connection.sendall(_line(supervisor.verdict(row)))
    except (BrokenPipeError, ConnectionResetError):
        pass
    finally:
        supervisor.close()


if __name__ == "__main__":
    main()
