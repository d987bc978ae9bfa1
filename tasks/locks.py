"""A Prefect lock manager on `flock`: a lock is free at once when its holder dies, however it dies.

Prefect's own FileSystemLockManager keeps a lock for ever after kill -9.
"""

import asyncio
import threading
import time
from typing import Any

from prefect.locking.protocol import LockManager

from reasoner.errors import BusyError
from reasoner.home import Home
from reasoner.process.locks import FileLock
from reasoner.process.stage_lock import stage_lock

POLL_SECONDS = 0.2


class FlockLockManager(LockManager):
    """One `FileLock` a key, in the home folder's `locks`. Locks never expire: `hold_timeout` is not supported."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[str, FileLock]] = {}
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
        lock = _lock(key)
        try:
            lock.acquire(acquire_timeout)
        except BusyError:
            return False
        with self._guard:
            self._held[key] = (holder, lock)
        return True

    async def aacquire_lock(
        self, key: str, holder: str, acquire_timeout: float | None = None, hold_timeout: float | None = None
    ) -> bool:
        return await asyncio.to_thread(self.acquire_lock, key, holder, acquire_timeout, hold_timeout)

    def release_lock(self, key: str, holder: str) -> None:
        with self._guard:
            if not self.is_lock_holder(key, holder):
                raise ValueError(f"no lock held by {holder} for {key}")
            self._held.pop(key)[1].release()

    def is_locked(self, key: str) -> bool:
        lock = _lock(key)
        try:
            lock.try_acquire()
        except BusyError:
            return True
        lock.release()
        return False

    def is_lock_holder(self, key: str, holder: str) -> bool:
        held = self._held.get(key)
        return held is not None and held[0] == holder

    def wait_for_lock(self, key: str, timeout: float | None = None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.is_locked(key):
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    async def await_for_lock(self, key: str, timeout: float | None = None) -> bool:
        return await asyncio.to_thread(self.wait_for_lock, key, timeout)


def _lock(key: str) -> FileLock:
    return stage_lock(Home.from_environment(), key)
