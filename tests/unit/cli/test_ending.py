"""A command that is told to end says one line and gives the status that shells give.

Wrong if SIGTERM leaves what was opened open, shows a traceback, or says its line twice.
"""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys, time
from flows import cli, ending
@cli.app.command("wait")
def wait() -> None:
    ending.listen()
    try:
        print("ready", flush=True)
        {body}
    finally:
        print("closed", flush=True)
sys.argv = ["reasoner", "wait"]
cli.main()
"""
IN_FLOW = """
        from prefect.exceptions import TerminationSignal
        raise TerminationSignal(signal=signal.SIGTERM)
"""


@pytest.mark.parametrize(
    ("body", "number", "status", "word"),
    [
        ("time.sleep(600)", signal.SIGTERM, 143, "ended by SIGTERM"),
        ("time.sleep(600)", signal.SIGINT, 130, "interrupted"),
        (IN_FLOW.strip(), None, 143, "ended by SIGTERM"),
    ],
    ids=["sigterm", "ctrl-c", "in-a-flow"],
)
def test_told_to_end(body: str, number: int | None, status: int, word: str) -> None:
    program = PROGRAM.format(body=body)
    root = Path(__file__).resolve().parents[3]
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    if number is not None:
        process.send_signal(number)
    out, said = process.communicate(timeout=120)
    assert process.returncode == status
    assert out == "closed\n"
    assert said.splitlines() == [f"reasoner: {word}; the same command goes on from where it was"]
