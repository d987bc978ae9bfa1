"""Stands between a parent and its child and ends the child's whole tree when the parent is gone.

Run as a program by `child.start_child`, with a socket to the parent and the child's command. It starts the
child in a session of its own and then only waits. The kernel closes the socket when the parent dies,
however it dies, and that, a change of its own parent, or an order on the socket makes it end the tree:
SIGTERM, a grace, SIGKILL. PR_SET_PDEATHSIG would not do: it fires when the parent's thread ends. As a
subreaper it inherits what detaches itself, so that workers with a session of their own are found too. When
the child has ended its leftovers are ended as well. A child that was given a secret has its output redacted
on the way to its log. Imports nothing of this project (it loads reasoner/redaction.py by its path), so that it starts
fast and stays small.
"""

import contextlib
import ctypes
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time

ORPHAN_GRACE = 0.3
"""Seconds between SIGTERM and SIGKILL when the parent is gone: the tree must be dead within one second."""
LEFTOVER_GRACE = 2.0
"""The same for what a child leaves behind when it has ended."""
POLL, TERMINATION_POLL = 0.2, 0.02
PR_SET_CHILD_SUBREAPER = 36
REDACTION = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "redaction.py")
FLUSH_SECONDS = 2.0
"""How long the last lines of a child that has ended are waited for."""


class Guard:
    """The one child and the socket to the parent."""

    def __init__(self, control: socket.socket, parent: int) -> None:
        self.control = control
        self.parent = parent
        self.child = 0
        self.status: int | None = None
        self.order = b""
        self.closed = False
        self.hurried = False
        self.wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self.wake, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def run(self, command: list[str], progress: int) -> None:
        """Start the child, wait for its end, end what it leaves, and tell the parent its wait status."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # Not SIG_IGN: an ignored signal would stay ignored in the child, a caught one does not.
            signal.signal(number, lambda number, frame: None)
        output, pump = redacted_output()
        try:
            process = subprocess.Popen(
                command, pass_fds=[progress], start_new_session=True, stdout=output, stderr=output
            )
        except OSError as error:
            self.tell({"error": f"{error.filename or command[0]}: {error.strerror}"})
            return
        finally:
            if output is not None:
                os.close(output)
        self.child = process.pid
        try:
            self.tell({"pid": self.child})
            while self.status is None:
                grace = self.next_order(POLL)
                if grace is not None:
                    self.end_tree(grace)
            self.end_tree(LEFTOVER_GRACE)
            if pump is not None:
                pump.join(FLUSH_SECONDS)
            self.tell({"status": self.status})
        finally:
            # A guard that fails must not leave its tree behind.
            send(signal.SIGKILL)

    def next_order(self, seconds: float) -> float | None:
        """Wait a moment for news; the grace in seconds if the tree is to end, else None."""
        watched = [self.wake] if self.closed else [self.wake, self.control.fileno()]
        ready, _, _ = select.select(watched, [], [], seconds)
        self.reap()
        if self.control.fileno() in ready:
            try:
                data = self.control.recv(4096)
            except ConnectionResetError:
                # The parent died without having read what we told it.
                data = b""
            self.closed = not data
            self.order += data
        if self.closed or os.getppid() != self.parent:
            # A forked sibling may hold the socket open; the parent's pid cannot be inherited.
            return ORPHAN_GRACE
        if b"\n" in self.order:
            line, _, self.order = self.order.partition(b"\n")
            return float(json.loads(line)["grace"])
        return None

    def reap(self) -> None:
        """Collect every ended process, also the adopted ones."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self.wake, 4096):
                pass
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.child:
                    self.status = status

    def end_tree(self, grace: float) -> None:
        """SIGTERM once to every descendant, SIGKILL to those that live after `grace` seconds."""
        send(signal.SIGTERM)
        end = time.monotonic() + grace
        while descendants():
            if time.monotonic() >= end:
                send(signal.SIGKILL)
            hurry = self.next_order(TERMINATION_POLL)
            if hurry is not None:
                end = min(end, time.monotonic() + hurry) if not self.hurried else end
                self.hurried = True
        self.reap()

    def tell(self, message: dict[str, object]) -> None:
        with contextlib.suppress(OSError):
            self.control.sendall(json.dumps(message).encode() + b"\n")


def redacted_output() -> tuple[int | None, threading.Thread | None]:
    """Where a child with secrets in its environment writes to, and the thread that passes that on."""
    spec = importlib.util.spec_from_file_location("redaction", REDACTION)
    assert spec is not None and spec.loader is not None
    redaction = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(redaction)
    secrets = redaction.own_secrets()
    if not secrets:
        return None, None
    source, target = os.pipe()
    pump = threading.Thread(target=redaction.copy, args=(source, 1, secrets), daemon=True)
    pump.start()
    return target, pump


def descendants() -> list[int]:
    """Every living process below this one, whatever its group or session."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as handle:
                state, parent = handle.read().rpartition(b")")[2].split()[:2]
                if state not in (b"Z", b"X"):
                    children.setdefault(int(parent), []).append(int(name))
    found: list[int] = []
    level = [os.getpid()]
    while level:
        level = [pid for parent in level for pid in children.get(parent, [])]
        found += level
    return found


def send(number: int) -> None:
    for pid in descendants():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def main(arguments: list[str]) -> None:
    control, parent, progress = (int(value) for value in arguments[:3])
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # The child finds the pipe by its inode, and its own children find it through this process.
    os.environ["REASONER_PROGRESS"] = f"{progress}:{os.fstat(progress).st_ino}:{os.getpid()}"
    Guard(socket.socket(fileno=control), parent).run(arguments[3:], progress)


if __name__ == "__main__":
    main(sys.argv[1:])
