"""A lock between processes that the kernel frees the moment its owner dies, kill -9 included.

Built on `fcntl.flock`. A lock file may be removed by who holds it (`release_and_remove`) and by nobody else: a
lock that was won on a file which is no longer at its path does not count. Forked children do not keep the
lock. Not covered: network file systems without flock.
"""

import contextlib
import errno
import fcntl
import json
import os
import threading
import time
import weakref
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reasoner.errors import BusyError, InfrastructureError
from reasoner.process.owner import owner_tag

FIRST_WAIT, LONGEST_WAIT = 0.005, 0.1


class FileLock:
    """An exclusive lock on `path`, for one owner at a time, threads of one process included.

    `with FileLock(path):` raises BusyError at once if another holds it; with `timeout` (seconds, or None for
    no end) it waits first. Copies (`copy.deepcopy`) are the same lock, as Prefect's lock managers need it.
    """

    def __init__(self, path: str | Path, timeout: float | None = 0.0) -> None:
        self.path = Path(path)
        self.timeout = timeout
        self._fd: int | None = None
        self._guard = threading.Lock()
        _all_locks.add(self)

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd is not None

    def try_acquire(self) -> None:
        """Take the lock or raise BusyError, which names the owner's pid."""
        with self._guard:
            if self._fd is not None:
                raise BusyError(f"{self.path} is held by this process ({os.getpid()}) already")
            fd = self._lock_file()
            while not _is_at(fd, self.path):  # removed by its holder after it was opened here
                os.close(fd)
                fd = self._lock_file()
            self._sign(fd)
            self._fd = fd

    def acquire(self, timeout: float | None = None) -> None:
        """Take the lock, waiting `timeout` seconds (None: for ever). Raises BusyError after that."""
        end = None if timeout is None else time.monotonic() + timeout
        wait = FIRST_WAIT
        while True:
            try:
                return self.try_acquire()
            except BusyError:
                left = LONGEST_WAIT if end is None else end - time.monotonic()
                if left <= 0:
                    raise
            time.sleep(min(wait, left))
            wait = min(2 * wait, LONGEST_WAIT)

    def release(self) -> None:
        """Give the lock back; does nothing if it is not held."""
        with self._guard:
            if self._fd is not None:
                fd, self._fd = self._fd, None
                # Not by closing alone: a child that is just being started has a copy until it runs its program.
                with contextlib.suppress(OSError):
                    fcntl.flock(fd, fcntl.LOCK_UN)
                os.close(fd)

    def release_and_remove(self) -> None:
        """Give the lock back and take its file away; does nothing if it is not held."""
        with self._guard:
            if self._fd is not None:
                with contextlib.suppress(OSError):
                    os.unlink(self.path)
        self.release()

    def owner(self) -> dict[str, Any] | None:
        """What the last owner wrote (`pid`, `since`, `owner`), or None. It may have died since."""
        try:
            found = json.loads(self.path.read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def __enter__(self) -> Self:
        self.acquire(self.timeout)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __del__(self) -> None:
        if getattr(self, "_fd", None) is not None:
            self.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def _open(self) -> int:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise self._trouble(error) from error

    def _lock_file(self) -> int:
        """The open, locked file; BusyError if another holds it."""
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise BusyError(self._complaint()) from None
            raise self._trouble(error) from error
        return fd

    def _sign(self, fd: int) -> None:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        text = json.dumps({"pid": os.getpid(), "since": since, "owner": owner_tag()})
        # On a full disk the lock holds all the same; only its owner is not told.
        with contextlib.suppress(OSError):
            os.ftruncate(fd, 0)
            os.pwrite(fd, text.encode() + b"\n", 0)

    def _complaint(self) -> str:
        found = self.owner()
        who = f"process {found.get('pid')} (since {found.get('since')})" if found else "another process"
        return f"{self.path} is held by {who}. Wait for it to end, or stop it, and try again."

    def _trouble(self, error: OSError) -> InfrastructureError:
        return InfrastructureError(f"cannot lock {self.path}: {error.strerror}. Its folder must be writable.")


def _is_at(fd: int, path: Path) -> bool:
    """Whether the open file is the one that `path` names now."""
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except OSError:
        return False


_all_locks: "weakref.WeakSet[FileLock]" = weakref.WeakSet()


def _forget_in_child() -> None:
    """A forked child shares the open file, and with it the lock: close its copy, which frees nothing here."""
    for lock in list(_all_locks):
        lock._guard = threading.Lock()
        if lock._fd is not None:
            os.close(lock._fd)
            lock._fd = None


os.register_at_fork(after_in_child=_forget_in_child)
