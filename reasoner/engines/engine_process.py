"""Starts the process of an engine, connects to it, and tells why it ended.

The socket is a Unix socket in a private temporary folder (mode 0700) that is gone as soon as the engine has
connected. The engine's output is appended to a log file. The process and all that it starts end with this
one (reasoner.process.child).
"""

import contextlib
import os
import shutil
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Protocol

from reasoner.engines.wire import Wire
from reasoner.errors import EngineError
from reasoner.hardware import compute_environment
from reasoner.process.child import Child, start_child
from reasoner.process.environment import python_path
from reasoner.process.waiting import wait_until

PATH_LIMIT = 100
"""A Unix socket's path may have 107 bytes on Linux."""
POLL_SECONDS = 0.1
CLOSE_SECONDS = 10.0
"""How long an engine may take to end by itself before it is told to."""
DEATH_SECONDS = 5.0
"""How long a process that has closed its connection may take to end, so that its status is known."""


class RunningEngine(Protocol):
    """The process of an engine as its client sees it. Safe to close from another thread."""

    wire: Wire

    @property
    def pid(self) -> int | None: ...

    @property
    def alive(self) -> bool: ...

    def death(self) -> str: ...

    def last_lines(self, count: int) -> list[str]: ...

    def close(self, *, polite: bool = True, grace: float | None = None) -> None: ...

    def leave(self, idle_seconds: float) -> None: ...


class EngineProcess:
    """One running worker with its `wire` and its log. Safe to close from another thread."""

    def __init__(self, log: Path, devices: str | None = None) -> None:
        """Start the worker and wait until it has connected; `devices` as for `start_engine`. Raises EngineError when it
        ends before that.
        """
        self.log = log
        self._lock = threading.Lock()
        folder = socket_folder()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(str(folder / "engine"))
                listener.listen(1)
                self._child = start_engine("reasoner.engines.worker", [folder / "engine"], log, devices)
                try:
                    self.wire = Wire(self._accept(listener))
                except BaseException:
                    self._child.__exit__(None, None, None)
                    raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def pid(self) -> int | None:
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it can be talked to. The socket shows a death before the status does."""
        return not self.wire.hung_up and not self._ended()

    def _ended(self) -> bool:
        with self._lock:
            return self._child.poll() is not None

    def _accept(self, listener: socket.socket) -> socket.socket:
        listener.settimeout(POLL_SECONDS)
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                if self._ended():
                    raise EngineError(self.death()) from None
                continue
            connection.settimeout(None)
            return connection

    def death(self) -> str:
        """Why the process ended, with the last lines that it wrote and its log.

        Waits a moment for the end of a process that has closed its connection only.
        """
        wait_until(self._ended, DEATH_SECONDS)
        with self._lock:
            ended = self._child.returncode is not None
            return str(self._child.failure(None if ended else "closed its connection"))

    def last_lines(self, count: int) -> list[str]:
        """The last lines that this process wrote, at most `count`."""
        return self._child.tail(count)

    def leave(self, idle_seconds: float) -> None:
        """End the process: it ends with this one, and nobody else can find it."""
        self.close()

    def close(self, *, polite: bool = True, grace: float | None = None) -> None:
        """End the process and all that it started. Polite: let the engine end by itself first.

        `grace` is the time between SIGTERM and SIGKILL, by default the child's. A `receive` that waits in
        another thread returns None.
        """
        if polite:
            with contextlib.suppress(OSError):
                self.wire.send({"op": "close"})
                wait_until(self._ended, CLOSE_SECONDS)
        self.wire.close()
        with self._lock:
            self._child.terminate(grace)
            self._child.__exit__(None, None, None)


def socket_folder() -> Path:
    """A new private folder (mode 0700) whose path leaves room for the name of a socket."""
    folder = Path(tempfile.mkdtemp(prefix="reasoner-"))
    if len(os.fsencode(folder)) <= PATH_LIMIT - len("/engine"):
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="reasoner-", dir="/tmp"))


def start_engine(module: str, arguments: list[str | Path], log: Path, devices: str | None = None) -> Child:
    """Start a program that runs an engine, and that ends with this process.

    `devices` are the cards that it may use, as CUDA_VISIBLE_DEVICES names them; None: those that this process may.
    """
    cards = {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices}
    return start_child(
        [sys.executable, "-m", module, *arguments],
        log=log,
        env={"PYTHONPATH": python_path(), **compute_environment(), **cards},
    )
