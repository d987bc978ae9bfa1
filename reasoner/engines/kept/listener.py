"""A kept engine's process: `python -m reasoner.engines.kept.listener SOCKET OWNER`, started by the keeper. It
serves one client after another on a Unix socket, until there is none for too long.

A client that leaves without a goodbye, or whose process ends, ends this process at once: the closed connection says so,
and where something that the client forked holds it open, its pid does.
"""

import contextlib
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from reasoner.engines.wire import Wire
from reasoner.engines.worker import Resting, Worker, be_ready, end_now, end_well
from reasoner.process.owner import owner_is_dead, owner_tag

POLL_SECONDS = 0.3
FIRST_SECONDS = 60.0
"""How long the client that started this process may take to connect."""
CREDENTIALS = struct.Struct("3i")
"""Pid, user and group, as SO_PEERCRED gives them."""


def serve(path: Path, owner: str) -> None:
    """Serve clients at `path` until one closes the engine, or none comes for as long as the last one said.

    `owner` is a process tag (reasoner.process.owner): once that process has ended, nobody is waited for.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(POLL_SECONDS)
        resting: Resting | None = None
        while connection := _accept(listener, resting.idle_seconds if resting else FIRST_SECONDS, owner):
            with connection, _watched(connection):
                wire = Wire(connection)
                try:
                    wire.send({"op": "welcome", "pid": os.getpid()})
                except OSError:
                    end_now()
                resting = Worker(wire, resting).run()
                wire.close()
            if resting is None:
                return


def _accept(listener: socket.socket, patience: float, owner: str) -> socket.socket | None:
    """The next client's connection, or None when nobody came within `patience` seconds or the owner has ended."""
    end = time.monotonic() + patience
    while time.monotonic() < end and not owner_is_dead(owner):
        with contextlib.suppress(TimeoutError):
            connection, _ = listener.accept()
            connection.settimeout(None)
            return connection
    return None


@contextlib.contextmanager
def _watched(connection: socket.socket) -> Iterator[None]:
    """End this process when the client's ends within the block."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    client = owner_tag(CREDENTIALS.unpack(raw)[0])
    left = threading.Event()

    def watch() -> None:
        while not left.wait(POLL_SECONDS):
            if owner_is_dead(client):
                end_now()

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        left.set()


if __name__ == "__main__":
    be_ready()
    serve(Path(sys.argv[1]), owner=sys.argv[2])
    end_well()
