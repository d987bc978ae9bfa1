"""A run that lost its Prefect server says so; a failed request to anybody else is not taken for that."""

import sys
from pathlib import Path

import httpx
import pytest

from flows.commands.embedded_server import server_trouble
from reasoner.process.child import start_child

API = "http://127.0.0.1:9/api"


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
