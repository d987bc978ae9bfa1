"""Starts the process of an engine, connects to it, and tells why it ended.

The socket is a Unix socket in a private temporary folder (mode 0700) that is gone as soon as the engine has
connected. The engine's output is appended to a log file.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import reasoner
from reasoner.engines.wire import Wire
from reasoner.errors import EngineError

PATH_LIMIT = 100
"""A Unix socket's path may have 107 bytes on Linux."""
POLL_SECONDS = 0.2
CLOSE_SECONDS = 10.0
"""How long an engine may take to end by itself before its group is killed."""


class EngineProcess:
    """One running worker: its pid, its `wire` and its log."""

    def __init__(self, log: Path) -> None:
        """Start the worker and wait until it has connected. Raises EngineError when it ends before that."""
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = log.stat().st_size if log.exists() else 0
        folder = _socket_folder()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(str(folder / "engine"))
                listener.listen(1)
                self._process = _start(str(folder / "engine"), log)
                self.wire = Wire(self._accept(listener))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def _accept(self, listener: socket.socket) -> socket.socket:
        listener.settimeout(POLL_SECONDS)
        while True:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                if not self.alive:
                    raise EngineError(self.death()) from None
                continue
            connection.settimeout(None)
            return connection

    def death(self) -> str:
        """Why the process ended, with the last lines that it wrote and its log. Waits for its end a moment."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=CLOSE_SECONDS)
        code = self._process.returncode
        if code is None:
            how = "closed its connection"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"ended with status {code}"
        last = " | ".join(self.last_lines(3)) or "it wrote nothing"
        return f"the engine's process {how} (last lines: {last}; log: {self.log})"

    def last_lines(self, count: int) -> list[str]:
        """The last lines that this process wrote, at most `count`, without empty ones."""
        with contextlib.suppress(OSError), self.log.open("rb") as handle:
            size = handle.seek(0, os.SEEK_END)
            handle.seek(max(self._log_start, size - 20_000))
            lines = handle.read().decode(errors="replace").splitlines()
            return [line.strip()[:300] for line in lines if line.strip()][-count:]
        return []

    def close(self, *, polite: bool = True) -> None:
        """End the process and all that it started. Polite: let the engine end by itself first."""
        if polite:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self.wire.send({"op": "close"})
                self._process.wait(timeout=CLOSE_SECONDS)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.wire.close()


def _socket_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="reasoner-"))
    if len(os.fsencode(folder)) <= PATH_LIMIT - len("/engine"):
        return folder
    folder.rmdir()
    return Path(tempfile.mkdtemp(prefix="reasoner-", dir="/tmp"))


def _start(path: str, log: Path) -> subprocess.Popen[bytes]:
    root = str(Path(reasoner.__file__).resolve().parents[1])
    inherited = os.environ.get("PYTHONPATH")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, inherited] if inherited else [root])}
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "reasoner.engines.worker", path],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
