"""The lock on a stage's key: who computes the stage, or takes it from the cache, holds it meanwhile."""

from reasoner.home import Home
from reasoner.process.locks import FileLock


def stage_lock(home: Home, key: str) -> FileLock:
    """The lock of `key` in a home folder, not taken yet."""
    return FileLock(home.locks / (key.replace("/", "-") + ".lock"))
