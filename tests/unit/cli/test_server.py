"""The Prefect server that is started for a run and by `reasoner up`: how long it waits for SQLite's lock."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from flows.commands.health import answers
from flows.commands.processes import PROJECT
from tests.support.services import ask, eventually, free_port


@pytest.fixture(params=["uvicorn", "start"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Address and database of a server, started as a run starts it and as `up` does."""
    port = str(free_port())
    command = {
        "uvicorn": ["-m", "uvicorn", "--factory", "flows.server:create_app", "--port", port],
        "start": ["-m", "flows.server", "start", "--host", "127.0.0.1", "--port", port],
    }[request.param]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = {**kept, "PREFECT_HOME": str(tmp_path), "DO_NOT_TRACK": "1", "PREFECT__SERVER_FINAL": "1"}
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=PROJECT, env=environment, stdout=log, stderr=log
        )
    url = f"http://127.0.0.1:{port}/api"
    try:
        eventually(lambda: answers(url), "the server answers")
        yield url, tmp_path / "prefect.db"
    finally:
        process.terminate()
        process.wait(60)


def test_a_request_that_finds_the_database_locked_is_told_to_ask_again(server: tuple[str, Path]) -> None:
    """Prefect's own 60 s would let this request wait until the lock is gone, or time out here after 40."""
    url, database = server
    assert httpx.post(f"{url}/flows/", json={"name": "before"}, timeout=40).status_code == 201
    writer = sqlite3.connect(database, isolation_level=None)
    try:
        writer.execute("BEGIN IMMEDIATE")
        assert httpx.post(f"{url}/flows/", json={"name": "locked"}, timeout=40).status_code == 503
    finally:
        writer.close()
    assert ask("POST", f"{url}/flows/", name="after")["name"] == "after"
