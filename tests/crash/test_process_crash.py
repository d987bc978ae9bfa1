"""kill -9 of a parent: its children, grandchildren, daemons and guards are gone within one second."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.unit.process.test_child import FAMILY, alive, read_pids, wait_for

pytestmark = pytest.mark.crash

PARENT = """
import os, sys, threading, time
from pathlib import Path
from reasoner.process import run_child

folder, mode = Path(sys.argv[1]), sys.argv[2]
family = (folder / "family.py").read_text()
argv = [sys.executable, "-c", family, str(folder / "pids")]

def start():
    run_child(argv, log=folder / "log")

if mode == "forked":
    # A forked sibling holds a copy of every descriptor, the guard's socket too, and outlives its parent.
    threading.Thread(target=start, daemon=True).start()
    time.sleep(1)
    if os.fork() == 0:
        (folder / "sibling").write_text(str(os.getpid()))
        time.sleep(100)
    time.sleep(100)
elif mode == "thread":
    # The thread that starts the child is not the one that lives on: PR_SET_PDEATHSIG would fire too early.
    from reasoner.process import start_child
    kept = []
    thread = threading.Thread(target=lambda: kept.append(start_child(argv, log=folder / "log")))
    thread.start()
    thread.join()
    time.sleep(100)
else:
    start()
"""


def guards_of(folder: Path) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                command = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            if b"guard.py" in command and str(folder).encode() in command:
                found.append(int(name))
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("mode", ["main", "thread", "forked"])
def test_the_tree_dies_with_its_parent(tmp_path: Path, mode: str, number: signal.Signals) -> None:
    (tmp_path / "family.py").write_text(FAMILY)
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), mode])
    pids = read_pids(tmp_path / "pids", 4)
    if mode == "forked":
        wait_for((tmp_path / "sibling").exists)
    guards = guards_of(tmp_path)
    assert len(guards) == 1 and all(alive(pid) for pid in pids)
    time.sleep(0.3)
    assert all(alive(pid) for pid in pids)
    start = time.monotonic()
    os.kill(parent.pid, number)
    parent.wait()
    try:
        # Ten seconds are for a machine that is busy; the family's own work ends after minutes.
        wait_for(lambda: not any(alive(pid) for pid in [*pids, *guards]), 10)
        print(f"tree gone after {time.monotonic() - start:.2f} s")
    finally:
        if mode == "forked":
            os.kill(int((tmp_path / "sibling").read_text()), signal.SIGKILL)
