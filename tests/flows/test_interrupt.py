"""Ctrl-C in the middle of a run, with the server that the run started: a line, status 130, nothing left behind."""

import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.flows.test_kill import SECONDS, command, rows
from tests.support.commands import start_alone
from tests.unit.training.tiny import make_model

pytestmark = [pytest.mark.flows, pytest.mark.crash, pytest.mark.timeout(600)]

END_SECONDS = 120


def descendants(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def until_answers(home: Path, process: subprocess.Popen[bytes], log: Path, count: int) -> None:
    deadline = time.monotonic() + SECONDS
    while rows(home) < count:
        assert process.poll() is None, f"it ended too soon: {log.read_text()[-2000:]}"
        assert time.monotonic() < deadline, f"never got there: {log.read_text()[-2000:]}"
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)], ids=["ctrl-c", "kill"]
)
def test_an_interrupted_run_leaves_nothing_running_and_loses_nothing(
    tmp_path: Path, number: int, status: int
) -> None:
    home, log = tmp_path / "home", tmp_path / "log"
    run = start_alone(home, *command(make_model(tmp_path / "model"), 0.02), log=log)
    until_answers(home, run, log, 32)
    left = descendants(run)
    assert any("uvicorn" in part for child in left for part in child.cmdline()), "it has a server of its own"
    os.killpg(run.pid, number)  # a terminal's Ctrl-C reaches the whole foreground group
    assert run.wait(END_SECONDS) == status, log.read_text()[-2000:]
    _, alive = psutil.wait_procs(left, timeout=END_SECONDS)
    assert not alive, [child.cmdline() for child in alive]
    if number == signal.SIGINT:
        said = log.read_text().splitlines()
        assert said[-1] == "reasoner: interrupted; the same command goes on from where it was", said[-5:]
        assert not any("Traceback" in line for line in said)
    kept = rows(home)
    assert kept >= 32
    again = start_alone(home, *command(make_model(tmp_path / "again"), 0.0), log=log)
    until_answers(home, again, log, kept + 1)
    os.killpg(again.pid, signal.SIGKILL)
    again.wait()
