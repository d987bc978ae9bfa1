"""How a child tells its parent how far it is: one JSON line a report on a pipe.

`report(done=3, total=10, loss=0.7)` does nothing outside of a child. A report is never worth waiting for:
when the parent is slow or gone it is dropped. Grandchildren (a launcher's workers) may report too.
"""

import json
import os
import threading
from typing import Any

VARIABLE = "REASONER_PROGRESS"
"""`fd:inode:pid`: the pipe's descriptor in the child, its inode, and a process that keeps it open."""
LIMIT = 4096
"""Longest line, in bytes: up to this size the kernel keeps the lines of several processes apart (PIPE_BUF).
"""

_lock = threading.Lock()
_opened: tuple[str, int | None] | None = None


def report(*, done: float | None = None, total: float | None = None, **fields: Any) -> bool:
    """Tell the parent `done` of `total` and further fields (plain JSON data); returns whether it was sent."""
    fd = _descriptor()
    if fd is None:
        return False
    known = {name: value for name, value in (("done", done), ("total", total)) if value is not None}
    line = json.dumps({**known, **fields}, default=str).encode() + b"\n"
    if len(line) > LIMIT:
        line = json.dumps({**known, "cut": True}).encode() + b"\n"
    try:
        with _lock:
            os.write(fd, line)
    except OSError:
        return False
    return True


def _descriptor() -> int | None:
    """The pipe of this process, found again after a change of the variable; None if there is none."""
    global _opened
    value = os.environ.get(VARIABLE, "")
    if not value:
        return None
    with _lock:
        if _opened is None or _opened[0] != value:
            _opened = (value, _find(value))
        return _opened[1]


def _find(value: str) -> int | None:
    try:
        fd, inode, keeper = (int(part) for part in value.split(":"))
    except ValueError:
        return None
    try:
        # The number alone may be any file in a grandchild, to which the pipe was not passed on.
        if os.fstat(fd).st_ino == inode:
            return fd
    except OSError:
        pass
    path = f"/proc/{keeper}/fd/{fd}"
    try:
        if os.stat(path).st_ino == inode:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        pass
    return None
