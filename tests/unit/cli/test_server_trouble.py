"""A run that lost its Prefect server says so; a failed request to anybody else is not taken for that."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from flows.commands.embedded_server import server_trouble
from reasoner.process.child import start_child

API = "http://127.0.0.1:9/api"
LOGS = """
from flows.commands import prefect_settings
prefect_settings.prepare()
import logging
from prefect.logging.configuration import setup_logging
from prefect.logging.handlers import APILogHandler, APILogWorker
setup_logging()
logging.getLogger("prefect._internal.concurrency").error("a service failed")
sent = logging.getLogger("sent")
sent.addHandler(APILogHandler())
sent.error("a line of the run", extra={"flow_run_id": "6b0ab2f4-0a4a-4a1e-8d3c-000000000000"})
APILogWorker.drain_all()
"""
"""What Prefect logs of itself when its server is gone, and a line of a run that cannot be sent there."""


def failed_request(url: str) -> Exception:
    with pytest.raises(httpx.TransportError) as caught:
        httpx.get(url, timeout=5)
    return caught.value


def test_the_users_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", API)
    wrapped = RuntimeError("while orchestrating")
    wrapped.__cause__ = failed_request(f"{API}/flow_runs/")
    found = str(server_trouble(wrapped, None))
    assert API in found and "does not answer" in found and "The same command goes on" in found
    assert server_trouble(failed_request("http://127.0.0.1:9/models"), None) is None, "another server's"
    assert server_trouble(ValueError("x"), None) is None


def test_a_server_of_the_run_that_has_died(tmp_path: Path) -> None:
    with start_child([sys.executable, "-c", "raise SystemExit(3)"], log=tmp_path / "log") as dead:
        dead.wait(120)
        found = str(server_trouble(ValueError("x"), dead))
        assert "has died" in found and "exit status 3" in found


def test_a_living_server_is_not_blamed(tmp_path: Path) -> None:
    with start_child([sys.executable, "-c", "import time; time.sleep(600)"], log=tmp_path / "log") as living:
        assert server_trouble(ValueError("x"), living) is None


@pytest.mark.parametrize("debug", [False, True])
def test_prefects_own_log_of_a_lost_server_is_for_debugging(tmp_path: Path, debug: bool) -> None:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "REASONER_"))}
    own = {"REASONER_HOME": str(tmp_path), "PREFECT_HOME": str(tmp_path), "PREFECT_API_URL": API}
    env = {
        **inherited,
        **own,
        "PREFECT_CLIENT_MAX_RETRIES": "0",
        **({"REASONER_DEBUG": "1"} if debug else {}),
    }
    done = subprocess.run([sys.executable, "-c", LOGS], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert ("a service failed" in done.stderr) is debug, done.stderr
    assert ("Error logging to API" in done.stderr) is debug, done.stderr
