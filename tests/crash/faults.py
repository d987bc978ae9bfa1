"""Cuts a piece of work at its N-th write, flush, rename or other change on the disk.

The work runs in a forked process in which the calls of `os` that change a file system are counted. At the
N-th the process ends at once (a write first writes half of its bytes, as a torn write does), or the call
fails once or from then on. What a real power cut does to data that was not flushed is not simulated;
`trace` records the order of the calls instead, so that a test can check that nothing is renamed before it
is flushed.
"""

import errno
import os
import traceback
from collections.abc import Callable
from typing import Any

CALLS = ("write", "pwrite", "fsync", "rename", "replace", "mkdir", "unlink", "rmdir", "ftruncate")
FILLING = ("write", "pwrite", "mkdir")
KILLED, RAISED, SURVIVED = 87, 88, 89


def run_cut(work: Callable[[], None], at: int, mode: str = "kill") -> int:
    """Run `work` in a fork, cut at call number `at` (from 1); 0 if it ended before that,
    else KILLED, RAISED or (the failure did not matter) SURVIVED.

    `mode` is `kill`, `fail` (this call fails with ENOSPC) or `full` (this and
    every later call that needs space does; others are not counted).
    """
    pid = os.fork()
    if pid == 0:
        status = RAISED
        try:
            was_cut = _install(at, mode)
            work()
            status = SURVIVED if was_cut() else 0
        except BaseException:
            if mode == "kill":
                traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _install(at: int, mode: str) -> Callable[[], bool]:
    count = 0

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            nonlocal count
            count += 1
            if count < at or (mode != "full" and count > at):
                return real(*args, **more)
            if name == "write" and count == at:
                real(args[0], bytes(args[1])[: len(args[1]) // 2])
            if mode == "kill":
                os._exit(KILLED)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(args[0]))

        return call

    for name in FILLING if mode == "full" else CALLS:
        setattr(os, name, wrapped(name, getattr(os, name)))
    return lambda: count >= at


def trace(work: Callable[[], None], monkeypatch: Any) -> list[tuple[str, str]]:
    """The calls that `work` makes, with the path (for a descriptor: where it leads) of each."""
    calls: list[tuple[str, str]] = []

    def wrapped(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            first = args[0]
            path = os.readlink(f"/proc/self/fd/{first}") if isinstance(first, int) else os.fspath(first)
            calls.append((name, path))
            return real(*args, **more)

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, wrapped(name, getattr(os, name)))
        work()
    return calls
