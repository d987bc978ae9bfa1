"""Lock files that their holders take away.

Wrong if two can hold one lock because one of them has locked a file that is no longer there.
"""

import threading
from pathlib import Path

from reasoner.errors import BusyError
from reasoner.process.locks import FileLock


def test_many_take_turns_though_each_removes_the_file(tmp_path: Path) -> None:
    path, inside, most, turns = tmp_path / "a.lock", [], [], []

    def work() -> None:
        for _ in range(50):
            lock = FileLock(path)
            lock.acquire(timeout=60)
            inside.append(1)
            most.append(len(inside))
            inside.pop()
            turns.append(1)
            lock.release_and_remove()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(turns) == 200 and max(most) == 1 and not path.exists()


def test_removing_is_for_the_holder_alone(tmp_path: Path) -> None:
    held, other = FileLock(tmp_path / "a.lock"), FileLock(tmp_path / "a.lock")
    held.try_acquire()
    other.release_and_remove()
    try:
        other.try_acquire()
    except BusyError:
        pass
    else:
        raise AssertionError("the lock was lost")
    assert (tmp_path / "a.lock").exists()
    held.release_and_remove()
    assert not (tmp_path / "a.lock").exists() and not held.held
