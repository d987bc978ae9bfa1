"""A Prefect lock manager on `flock`: a lock is free at once when its holder dies, however it dies.

Prefect's own FileSystemLockManager keeps a lock for ever after kill -9.
"""

import asyncio
import fcntl
import os
import threading
import time
from pathlib import Path
from typing import IO, Any

from prefect.locking.protocol import LockManager

from reasoner.home import Home

POLL_SECONDS = 0.2


class FlockLockManager(LockManager):
    """One flock file a key, in the home folder's `locks`. Locks never expire: `hold_timeout` is not supported."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, IO[str]]] = {}
        self._guard = threading.Lock()

    def __deepcopy__(self, memo: dict[int, Any]) -> "FlockLockManager":
        return self  # Prefect copies cache policies; copies must share the locks that this process holds

    def acquire_lock(
        self, key: str, holder: str, acquire_timeout: float | None = None, hold_timeout: float | None = None
    ) -> bool:
        if hold_timeout is not None:
            raise ValueError("FlockLockManager's locks do not expire")
        if self.is_lock_holder(key, holder):
            return True
        deadline = None if acquire_timeout is None else time.monotonic() + acquire_timeout
        while not self._try(key, holder):
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    async def aacquire_lock(
        self, key: str, holder: str, acquire_timeout: float | None = None, hold_timeout: float | None = None
    ) -> bool:
        return await asyncio.to_thread(self.acquire_lock, key, holder, acquire_timeout, hold_timeout)

    def release_lock(self, key: str, holder: str) -> None:
        with self._guard:
            if self._held.get(key, ("", None))[0] != holder:
                raise ValueError(f"no lock held by {holder} for {key}")
            self._held.pop(key)[1].close()  # closing the file frees the flock

    def is_locked(self, key: str) -> bool:
        if key in self._held:
            return True
        probe = self._open(key)
        try:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            probe.close()
        return False

    def is_lock_holder(self, key: str, holder: str) -> bool:
        return self._held.get(key, ("", None))[0] == holder

    def wait_for_lock(self, key: str, timeout: float | None = None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.is_locked(key):
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    async def await_for_lock(self, key: str, timeout: float | None = None) -> bool:
        return await asyncio.to_thread(self.wait_for_lock, key, timeout)

    def _try(self, key: str, holder: str) -> bool:
        with self._guard:
            if key in self._held:
                return False
            handle = self._open(key)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.close()
                return False
            handle.truncate(0)
            handle.write(f"{os.getpid()}\n")
            handle.flush()
            self._held[key] = (holder, handle)
            return True

    def _open(self, key: str) -> IO[str]:
        path: Path = Home.from_environment().locks / (key.replace("/", "-") + ".lock")
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("a+")
