"""Locks between processes and threads."""

import copy
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from reasoner.errors import BusyError, InfrastructureError
from reasoner.process.locks import FileLock

HOLD = """
import sys, time
from reasoner.process.locks import FileLock
lock = FileLock(sys.argv[1])
lock.acquire()
print("held", flush=True)
time.sleep(float(sys.argv[2]))
"""


def holder(path: Path, seconds: float = 60.0) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_told_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.lock"
    process = holder(path)
    try:
        with pytest.raises(BusyError, match=rf"{path} is held by process {process.pid} \(since 20") as caught:
            FileLock(path).try_acquire()
        assert "\n" not in str(caught.value)
        with pytest.raises(BusyError), FileLock(path):
            pass
    finally:
        process.kill()
        process.communicate()


def test_kill_9_frees_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    process = holder(path)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    with FileLock(path) as lock:
        assert lock.held
        assert (lock.owner() or {})["pid"] == os.getpid()
    assert not lock.held


def test_waiting_gets_it_when_the_owner_ends_and_gives_up_in_time(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    start = time.monotonic()
    process = holder(path, 10.0)
    lock = FileLock(path)
    with pytest.raises(BusyError, match=str(process.pid)):
        lock.acquire(timeout=0.1)
    assert 0.1 <= time.monotonic() - start < 10
    lock.acquire(timeout=60)
    assert time.monotonic() - start >= 10
    lock.release()
    process.communicate()


def test_two_objects_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    one, two = FileLock(tmp_path / "x"), FileLock(tmp_path / "x")
    with one:
        with pytest.raises(BusyError, match=str(os.getpid())):
            two.try_acquire()
        with pytest.raises(BusyError, match="this process"):
            one.try_acquire()
    two.try_acquire()
    two.release()
    two.release()


def test_threads_exclude_each_other(tmp_path: Path) -> None:
    shared = FileLock(tmp_path / "x")
    inside, worst = 0, 0

    def work(own: FileLock) -> None:
        nonlocal inside, worst
        for _ in range(10):
            own.acquire()
            inside += 1
            worst = max(worst, inside)
            time.sleep(0.001)
            inside -= 1
            own.release()

    threads = [
        threading.Thread(target=work, args=(lock,)) for lock in (shared, shared, FileLock(tmp_path / "x"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert worst == 1


def test_a_forked_child_does_not_keep_it(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "x")
    lock.acquire()
    pid = os.fork()
    if pid == 0:
        time.sleep(30)
        os._exit(0)
    try:
        # The child shares the open file: without care its copy would keep the lock.
        deadline = time.monotonic() + 5
        while os.path.exists(f"/proc/{pid}/fd/{lock._fd}") and time.monotonic() < deadline:
            time.sleep(0.01)
        lock.release()
        FileLock(tmp_path / "x").try_acquire()
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_forked_child_does_not_free_it(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "x")
    lock.acquire()
    pid = os.fork()
    if pid == 0:
        lock.release()
        os._exit(1 if lock.held else 0)
    assert os.waitpid(pid, 0)[1] == 0
    with pytest.raises(BusyError):
        FileLock(tmp_path / "x").try_acquire()
    lock.release()


def test_a_copy_of_its_file_in_a_child_that_starts_does_not_keep_it(tmp_path: Path) -> None:
    """Between fork and exec a child has every file of its parent: releasing must not wait for its exec."""
    lock = FileLock(tmp_path / "x.lock")
    lock.acquire()
    assert lock._fd is not None
    copy_of_child = os.dup(lock._fd)
    try:
        lock.release()
        FileLock(tmp_path / "x.lock").try_acquire()
    finally:
        os.close(copy_of_child)


def test_a_lock_that_nobody_refers_to_is_free(tmp_path: Path) -> None:
    FileLock(tmp_path / "x").try_acquire()
    gc.collect()
    FileLock(tmp_path / "x").try_acquire()


def test_a_copy_is_the_same_lock(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "x")
    assert copy.deepcopy({"a": [lock]})["a"][0] is lock


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="cannot lock"):
        FileLock(tmp_path / "file" / "x").try_acquire()
    with pytest.raises(InfrastructureError, match="cannot lock"):
        FileLock("/proc/x.lock").try_acquire()
