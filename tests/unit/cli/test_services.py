"""`up`, `down` and `run --remote` where there is no server: what is said, what is kept, what is left alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.commands import deploying, processes, run, services
from flows.commands.processes import Service
from reasoner.errors import InfrastructureError, UsageError
from reasoner.home import Home
from tests.unit.cli.test_cli import reasoner


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in [name for name in os.environ if name.startswith("PREFECT_")]:
        monkeypatch.delenv(name)
    for name in ("PREFECT_API_URL", "PREFECT_HOME"):  # so that what the commands set is taken back
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("REASONER_HOME", str(tmp_path))
    return Home.from_environment()


def test_remote_without_a_server_says_how_to_get_one(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="reasoner up"):
        run.run("smart-demo", [], remote=True)
    done = reasoner(  # a process of its own: Prefect reads its settings once
        "run", "smart-demo", "--remote", home=home.path, PREFECT_API_URL="http://127.0.0.1:9/api"
    )
    assert done.returncode == 1 and "no Prefect server answers at http://127.0.0.1:9/api" in done.stderr


def test_a_server_of_somebody_else_is_never_started(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://prefect.invalid:4200/api")
    with pytest.raises(InfrastructureError, match="no Prefect server answers"):
        services.up(4200)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    monkeypatch.setenv("REASONER_SERVER", "external")
    with pytest.raises(InfrastructureError, match="no Prefect server answers"):
        services.up(4200)
    assert not (home.path / "services.json").exists()


def test_down_ends_what_was_started_and_nothing_that_has_its_number(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = processes.start(home, "worker-cpu", [sys.executable, "-c", "import time; time.sleep(600)"])
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    again = Service("worker-gpu", bystander.pid, born=1.0)  # its number was given to another process
    processes.save(home, "http://127.0.0.1:9/api", [mine, again])
    assert [service.name for service in processes.read(home)] == ["worker-cpu"]
    assert processes.read_url(home) == "http://127.0.0.1:9/api"
    services.down()
    assert "ended       worker-cpu" in capsys.readouterr().err
    assert not mine.alive and bystander.poll() is None
    bystander.kill()
    bystander.wait()
    services.down()
    assert "nothing that `reasoner up` started" in capsys.readouterr().err


def test_what_a_service_says_is_redacted_and_its_file_may_be_an_old_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "canary-of-a-service")
    program = "import os; print('token', os.environ['MY_TOKEN'], os.environ['REASONER_HOME'], flush=True)"
    service = processes.start(home, "server", [sys.executable, "-c", program])
    os.waitpid(service.pid, 0)
    log = processes.log_of(home, "server")
    for _ in range(600):
        if log.read_text().endswith("\n"):
            break
        subprocess.run(["sleep", "0.1"])
    assert log.read_text() == f"token [redacted: MY_TOKEN] {home.path}\n"
    (home.path / "services.json").write_text(json.dumps([{"name": "server", "pid": 1, "born": 1.0}]))
    assert processes.read(home) == [] and processes.read_url(home) is None
    (home.path / "services.json").write_text("{torn")
    assert processes.read(home) == []


def test_a_deployment_that_fails_is_told_by_the_line_that_says_why() -> None:
    framed = "  + Exception Group Traceback\n    | httpx.ConnectError: all attempts failed\n    +--------\n"
    assert (
        deploying.last_line(framed + "An exception occurred.\n") == "httpx.ConnectError: all attempts failed"
    )
    assert deploying.last_line("") == "no word of it"
