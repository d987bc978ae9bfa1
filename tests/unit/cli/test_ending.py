"""A command that is told to end says one line and gives the status that shells give.

Wrong if SIGTERM leaves what was opened open, shows a traceback, or says its line twice; or if a Prefect server that
answers nothing holds up a command that has ended.
"""

import os
import signal
import socket
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
UNSENT = """
        import logging
        from prefect.logging.handlers import APILogHandler
        ending.SETTLE_SECONDS = 1.0
        sent = logging.getLogger("sent")
        sent.addHandler(APILogHandler())
        sent.error("a line of the run", extra={"flow_run_id": "6b0ab2f4-0a4a-4a1e-8d3c-000000000000"})
"""
ROOT = Path(__file__).resolve().parents[3]


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
    process = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    if number is not None:
        process.send_signal(number)
    out, said = process.communicate(timeout=120)
    assert process.returncode == status
    assert out == "closed\n"
    assert said.splitlines() == [f"reasoner: {word}; the same command goes on from where it was"]


@pytest.mark.parametrize(
    ("last", "status", "word"),
    [("", 0, ""), ('raise cli.ReasonerError("no luck")', 1, "reasoner: no luck\n")],
    ids=["done", "failed"],
)
def test_a_server_that_answers_nothing_does_not_hold_up_the_end(
    tmp_path: Path, last: str, status: int, word: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        api = f"http://127.0.0.1:{mute.getsockname()[1]}/api"
        env = {**os.environ, "PREFECT_API_URL": api, "PREFECT_HOME": str(tmp_path)}
        program = PROGRAM.format(body=f"{UNSENT.strip()}\n        {last}")
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=env, capture_output=True, text=True, timeout=120
        )
    assert done.returncode == status and done.stdout == "ready\nclosed\n", done.stderr
    assert done.stderr.startswith(f"{word}reasoner: the Prefect server has not taken the last logs")
    assert done.stderr.count("\n") == len(word.splitlines()) + 1
