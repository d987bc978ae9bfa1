"""One sandboxed process as its trusted parent sees it: starts it, talks to it, ends it and its offspring.

The parent keeps three pipes: the job (frames to the child), the results (lines of JSON that the untrusted
process can forge, close or flood) and the control channel (lines that only the trusted set-up writes, before
and after the untrusted program). Reading never blocks past a deadline, and bytes are limited.
"""

import contextlib
import json
import marshal
import os
import select
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from functools import cache
from importlib import resources
from typing import Any

from reasoner.sandbox.jobs import Limits, Status
from reasoner.sandbox.namespaces import ProcessNamespace

START_SECONDS = 30.0
"""Longest time for the set-up of namespaces; more is the machine's failure, not the program's."""
END_SECONDS = 5.0
"""Longest wait for an orderly end, before the outer process itself is killed."""
MAX_VALUE_CHARACTERS = 1 << 19
"""Largest encoding of one value."""
ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/tmp",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
}
"""All that a program sees of the environment."""

_LOADER = """
import marshal, os
def exactly(n):
    b = b""
    while len(b) < n:
        p = os.read(0, n - len(b))
        if not p: os._exit(1)
        b += p
    return b
jail, harness, config = marshal.loads(exactly(int.from_bytes(exactly(4), "big")))
space = {"__name__": "jail"}
for code in jail: exec(code, space)
space["run"](config, harness)
"""
_JAIL = ("syscalls.py", "root.py", "jail.py")
_TICK = 0.1
_CHUNK = 1 << 16


class Stopped(Exception):
    """The child has answered for the last time: `status` says why, `message` more."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Cancelled(Exception):
    """The caller gave up; the child has been killed."""


@cache
def interpreter() -> str:
    """The interpreter that runs inside: the base of a virtual environment, which alone is shown there."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


@cache
def child_code(name: str) -> Any:
    source = resources.files("reasoner.sandbox.inside").joinpath(name).read_text(encoding="utf-8")
    return compile(source, f"<sandbox {name}>", "exec", dont_inherit=True)


def frame(value: Any) -> bytes:
    """A message to the child. Marshal is safe in this direction only: the parent is trusted."""
    data = marshal.dumps(value)
    return len(data).to_bytes(4, "big") + data


class Child:
    """A running sandbox. Use it as a context manager: leaving it kills what still runs.

    Raises `Stopped` from `receive` when no further answer can come, and `Cancelled` when `cancel` is set.
    """

    def __init__(
        self,
        job: dict[str, Any],
        settings: dict[str, Any],
        limits: Limits,
        programs: tuple[str, ...] = ("harness.py",),
        cancel: threading.Event | None = None,
    ) -> None:
        self.limits = limits
        self._cancel = cancel
        self._output_left = limits.output_kib << 10
        self._partial = b""
        self._lines: deque[bytes] = deque()
        self._control = b""
        self._ready = False
        self._started = time.monotonic()
        budget = min(self._output_left // 2, MAX_VALUE_CHARACTERS)
        config = settings | _limit_fields(limits) | {"job": job | {"budget": budget}}
        self._outgoing = frame(
            (tuple(child_code(name) for name in _JAIL), tuple(child_code(name) for name in programs), config)
        )
        try:
            self._process = subprocess.Popen(
                [interpreter(), "-I", "-S", "-B", "-c", _LOADER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise Stopped(Status.HARNESS_ERROR, f"cannot start {interpreter()}: {error}") from None
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._selector = selectors.DefaultSelector()
        for file, name in ((self._process.stdout, "results"), (self._process.stderr, "control")):
            os.set_blocking(file.fileno(), False)
            self._selector.register(file, selectors.EVENT_READ, name)
        os.set_blocking(self._process.stdin.fileno(), False)
        self._selector.register(self._process.stdin, selectors.EVENT_WRITE, "job")

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The outermost process, which is in no namespace of its own but the user's."""
        return self._process.pid

    def wait_ready(self) -> None:
        """Until the untrusted program is about to run. A failure before that is a harness error."""
        deadline = self._started + START_SECONDS
        while not self._ready:
            left = deadline - time.monotonic()
            if left <= 0:
                self.kill()
                raise Stopped(Status.HARNESS_ERROR, f"the set-up took longer than {START_SECONDS:.0f} s")
            self._pump(left)
            if not self._ready and not self._open("control"):
                self.kill()
                text = self._control.decode("utf-8", "replace").strip().removeprefix("error ")
                raise Stopped(Status.HARNESS_ERROR, text[-400:] or "the set-up ended without a word")

    def send(self, value: Any) -> None:
        """Queue a frame; it is written while `receive` waits."""
        if not self._outgoing and self._open("job") is False and not self._process.stdin.closed:  # type: ignore[union-attr]
            self._selector.register(self._process.stdin, selectors.EVENT_WRITE, "job")  # type: ignore[arg-type]
        self._outgoing += frame(value)

    def receive(self, deadline: float) -> dict[str, Any]:
        """The next object that the child wrote; `deadline` is a time of `time.monotonic`."""
        while not self._lines:
            if not self._open("results"):
                raise self._ended()
            left = deadline - time.monotonic()
            if left <= 0:
                self.kill()
                raise Stopped(Status.TIMEOUT, "no answer within the time limit")
            self._pump(left)
        return parse_line(self._lines.popleft())

    def _pump(self, seconds: float) -> None:
        """Move what the pipes have, waiting at most a tick."""
        if self._cancel is not None and self._cancel.is_set():
            self.kill()
            raise Cancelled
        for key, _ in self._selector.select(min(seconds, _TICK)):
            if key.data == "job":
                self._write_job()
            else:
                self._read(key.fd, key.data, key.fileobj)

    def _write_job(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            self._outgoing = self._outgoing[os.write(stdin.fileno(), self._outgoing[: 1 << 20]) :]
        except BlockingIOError:
            return
        except OSError:  # the child has gone; what it said before that tells why
            self._outgoing = b""
            self._selector.unregister(stdin)
            stdin.close()
            return
        if not self._outgoing:
            self._selector.unregister(stdin)

    def _read(self, fd: int, name: str, file: Any) -> None:
        try:
            data = os.read(fd, _CHUNK)
        except BlockingIOError:
            return
        if not data:
            self._selector.unregister(file)
        elif name == "control":
            self._control = (self._control + data)[-4096:]
            self._ready = self._ready or b"ready\n" in self._control
        else:
            self._output_left -= len(data)
            if self._output_left < 0:
                self.kill()
                raise Stopped(Status.OUTPUT_LIMIT, f"more than {self.limits.output_kib} KiB of answers")
            *lines, self._partial = (self._partial + data).split(b"\n")
            self._lines.extend(lines)

    def _open(self, name: str) -> bool:
        return any(key.data == name for key in (self._selector.get_map() or {}).values())

    def _ended(self) -> Stopped:
        """Why the result channel closed; the end of all processes follows within moments, or is made to."""
        deadline = time.monotonic() + 0.5
        while self._open("control") and time.monotonic() < deadline:
            with contextlib.suppress(Stopped):
                self._pump(deadline - time.monotonic())
        self.kill()
        for line in self._control.decode("utf-8", "replace").splitlines():
            kind, _, rest = line.removeprefix("end ").partition(" ")
            if not line.startswith("end "):
                continue
            if kind == "memory":
                return Stopped(Status.MEMORY, "all processes together held too much memory")
            if kind == "signal":
                return _signalled(int(rest))
            return Stopped(Status.KILLED, f"the process ended with status {rest} before it answered")
        return Stopped(Status.KILLED, "the program closed its result channel")

    def kill(self) -> None:
        """End everything in the sandbox; nothing of it is left on return. May be called again."""
        if self._process.returncode is None:
            pid = self._process.pid
            # The outer process kills init, waits until the kernel has ended the whole namespace, and ends.
            os.kill(pid, signal.SIGTERM)
            pidfd = os.pidfd_open(pid)
            try:
                poll = select.poll()
                poll.register(pidfd, select.POLLIN)
                ended = poll.poll(END_SECONDS * 1000)
            finally:
                os.close(pidfd)
            namespace = None if ended else ProcessNamespace.of(pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # it is not reaped yet, so the number is still its own
            self._process.wait()
            if namespace is not None:
                with namespace:
                    _wait_until_empty(namespace)
        self._selector.close()
        for file in (self._process.stdin, self._process.stdout, self._process.stderr):
            if file is not None:
                with contextlib.suppress(OSError):
                    file.close()


def _wait_until_empty(namespace: ProcessNamespace) -> None:
    """The kernel kills init when the outer process has gone; on a busy machine that takes moments."""
    deadline = time.monotonic() + END_SECONDS
    while namespace.processes() and time.monotonic() < deadline:
        time.sleep(0.02)


def _signalled(number: int) -> Stopped:
    if number == signal.SIGXCPU:
        return Stopped(Status.TIMEOUT, "the limit of CPU time")
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = str(number)
    return Stopped(Status.KILLED, f"the process was killed by {name}")


def _limit_fields(limits: Limits) -> dict[str, int]:
    return {
        "cpu_seconds": limits.cpu_seconds,
        "memory_bytes": limits.memory_mib << 20,
        "processes": limits.processes,
        "files": limits.files,
        "file_bytes": limits.file_mib << 20,
        "tmp_bytes": limits.tmp_mib << 20,
        "tmp_inodes": limits.tmp_mib * 64,
    }


def parse_line(line: bytes) -> dict[str, Any]:
    """An object of the result channel. Anything else was not written by the harness."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Stopped(Status.BAD_VALUE, "something other than the harness wrote on the result channel")
    return found
