"""Heavy work in a child process whose whole tree dies with this process.

`run_child` runs a program to its end; `start_child` starts one that lives on, such as an engine. Output
goes to a log file, progress comes back as JSON (`progress.report`), secrets stay out of the environment. A
crash of a GPU runtime or a kill for memory ends the child and is a `ChildFailedError` here. Linux only.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reasoner.errors import ChildFailedError, InfrastructureError
from reasoner.process.environment import child_environment
from reasoner.process.log_tail import TAIL_LINES, last_words, tail

GUARD = Path(__file__).with_name("guard.py")
GRACE = 10.0
"""Seconds between SIGTERM and SIGKILL."""
INTERRUPT_GRACE = 3.0
"""The same where this process was itself told to end: whoever told it waits for about 10 s."""
GUARD_MARGIN = 5.0
NEVER_STARTED = 127

OnProgress = Callable[[dict[str, Any]], None]


def run_child(
    argv: Sequence[str | Path],
    *,
    log: Path,
    on_progress: OnProgress | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float | None = None,
    grace: float = GRACE,
    cwd: Path | None = None,
) -> None:
    """Run `argv` to its end, with its output appended to `log` and `env` added to the allowed environment.

    `on_progress` gets every report of the child, in this thread. Raises ChildFailedError, with the last
    lines of the log, for a non-zero exit or after `timeout` seconds. On any exception here,
    KeyboardInterrupt included, the child's tree gets SIGTERM and after `grace` seconds SIGKILL.
    """
    with start_child(argv, log=log, on_progress=on_progress, env=env, grace=grace, cwd=cwd) as child:
        if child.wait(timeout) is None:
            child.terminate()
            raise child.failure(f"was stopped after its limit of {timeout:g} s")
        child.check()


def start_child(
    argv: Sequence[str | Path],
    *,
    log: Path,
    on_progress: OnProgress | None = None,
    env: Mapping[str, str] | None = None,
    grace: float = GRACE,
    cwd: Path | None = None,
) -> "Child":
    """Start `argv` and return at once; see `run_child`. Use it with `with`, whose end ends the child."""
    return Child([str(part) for part in argv], Path(log), on_progress, env, grace, cwd)


class Child:
    """A running child. Its methods belong to one thread; reports are delivered by `poll` and `wait`."""

    def __init__(
        self,
        argv: list[str],
        log: Path,
        on_progress: OnProgress | None,
        env: Mapping[str, str] | None,
        grace: float,
        cwd: Path | None,
    ) -> None:
        self.argv, self.log, self.grace = argv, log, grace
        self.pid: int | None = None
        """The child's pid, which is also its process group, once it has started."""
        self.returncode: int | None = None
        """Exit status, negative for a signal, None while it runs."""
        self._on_progress = on_progress
        self._trouble = ""
        self._control, theirs = socket.socketpair()
        self._progress, progress = os.pipe()
        # The flag belongs to the writers' end, which they share: a report never blocks the child.
        os.set_blocking(progress, False)
        os.set_blocking(self._progress, False)
        self._control.setblocking(False)
        self._buffers = {self._control.fileno(): b"", self._progress: b""}
        self._watched = [self._control.fileno(), self._progress]
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("ab") as output:
                self._log_start = output.tell()
                self._guard = subprocess.Popen(
                    [
                        sys.executable, "-I", "-S", str(GUARD),
                        str(theirs.fileno()), str(os.getpid()), str(progress), *argv,
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=child_environment(env),
                    cwd=cwd,
                    pass_fds=[theirs.fileno(), progress],
                    start_new_session=True,
                )  # fmt: skip
        except OSError as error:
            self._close()
            where = error.filename or log
            raise InfrastructureError(f"cannot start {argv[0]}: {error.strerror} ({where})") from error
        except BaseException:
            self._close()
            raise
        finally:
            theirs.close()
            os.close(progress)

    def poll(self) -> int | None:
        """The exit status if the child has ended, else None. Delivers waiting progress reports."""
        return self.wait(0.0)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait up to `timeout` seconds (None: for ever); the exit status, or None if it still runs."""
        end = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            left = None if end is None else max(0.0, end - time.monotonic())
            ready, _, _ = select.select(self._watched, [], [], left)
            if self._progress in ready:
                self._read_reports()
            if self._control.fileno() in ready:
                self._read_messages()
            elif end is not None and time.monotonic() >= end:
                break
        return self.returncode

    def check(self) -> None:
        """Raise ChildFailedError if the child has ended badly."""
        if self.poll() not in (None, 0):
            raise self.failure()

    def failure(self, what: str | None = None) -> ChildFailedError:
        """The error for a child that failed, with the last lines of its log."""
        name = " ".join(Path(part).name if part.startswith("/") else part for part in self.argv[:3])
        return ChildFailedError(
            f"{name} {what or self.how_it_ended()}. {last_words(self.log, self._log_start)}"
        )

    def tail(self, lines: int = TAIL_LINES) -> list[str]:
        """The last lines that this child wrote."""
        return tail(self.log, self._log_start, lines)

    def terminate(self, grace: float | None = None) -> int | None:
        """End the child's whole tree: SIGTERM, and after `grace` seconds SIGKILL. Returns the exit status."""
        grace = self.grace if grace is None else grace
        if self.returncode is None:
            self._on_progress = None
            with contextlib.suppress(OSError):
                self._control.send(json.dumps({"grace": grace}).encode() + b"\n")
            if self.wait(grace + GUARD_MARGIN) is None:
                self._kill()
        return self.returncode

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        interrupted = kind is not None and not issubclass(kind, Exception)
        try:
            self.terminate(min(self.grace, INTERRUPT_GRACE) if interrupted else None)
        finally:
            # After a second interrupt: the closed socket tells the guard to hurry.
            self._close()

    def __del__(self) -> None:
        # A child that nobody refers to ends: its guard sees the socket close.
        if hasattr(self, "_watched"):
            self._close()

    def _read_reports(self) -> None:
        messages, ended = self._read(self._progress)
        if ended:
            self._watched.remove(self._progress)
        for message in messages:
            if self._on_progress is not None:
                self._on_progress(message)

    def _read_messages(self) -> None:
        """What the guard says: that the child started, could not start, or ended."""
        messages, ended = self._read(self._control.fileno())
        for message in messages:
            self.pid = message.get("pid", self.pid)
            if "error" in message:
                self._trouble = f"cannot start: {message['error']}"
                self._finish(NEVER_STARTED)
            elif "status" in message:
                self._finish(os.waitstatus_to_exitcode(message["status"]))
        if ended and self.returncode is None:
            self._trouble = "lost its guard process, so it was killed (killed for memory?)"
            self._kill()

    def _read(self, fd: int) -> tuple[list[dict[str, Any]], bool]:
        """The whole messages that are there, and whether the stream has ended."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return [], False
        except ConnectionResetError:
            return [], True
        *lines, self._buffers[fd] = (self._buffers[fd] + data).split(b"\n")
        messages = []
        for line in lines:
            with contextlib.suppress(ValueError):
                messages.append(json.loads(line))
        return [message for message in messages if isinstance(message, dict)], not data

    def _finish(self, returncode: int) -> None:
        """The tree has ended: hand on the last reports, then let the end be seen."""
        while self._progress in self._watched and select.select([self._progress], [], [], 0)[0]:
            self._read_reports()
        self._guard.wait()
        self.returncode = returncode

    def _kill(self) -> None:
        """Without a working guard: SIGKILL to the child's group and to the guard."""
        for group in (self.pid, self._guard.pid):
            if group is not None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(group, signal.SIGKILL)
        self._finish(-signal.SIGKILL)

    def how_it_ended(self) -> str:
        """In a few words, for a message: by which signal, or with which status."""
        if self._trouble:
            return self._trouble
        code = self.returncode or 0
        if code in (-signal.SIGKILL, 128 + signal.SIGKILL):
            return "was ended by SIGKILL (killed for memory?)"
        if code < 0:
            return f"was ended by {signal.Signals(-code).name}"
        return f"ended with exit status {code}"

    def _close(self) -> None:
        """Give the descriptors back; may be called twice, and a number is never closed twice: it may be another's."""
        self._control.close()
        progress, self._progress = self._progress, -1
        if progress >= 0:
            os.close(progress)
