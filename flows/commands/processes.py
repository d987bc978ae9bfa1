"""The processes that `reasoner up` started: what they are, starting and ending them, their logs.

They are written to `services.json` in the home folder, so that `down` ends those and nothing else. What a process says
goes to its log through `reasoner.redaction`, since it has the whole environment, secrets included.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from reasoner.home import Home

PROJECT = Path(__file__).resolve().parents[2]
REDACTION = PROJECT / "reasoner" / "redaction.py"
STOP_SECONDS = 20
"""A worker needs up to 10 s to end its runs."""


@dataclass(frozen=True, slots=True)
class Service:
    """A process that `up` started. `born` tells it from a later process that was given the same number."""

    name: str
    pid: int
    born: float

    @property
    def alive(self) -> bool:
        return _born(self.pid) == self.born


def start(home: Home, name: str, command: list[str]) -> Service:
    """Start a command in a session of its own, with its output in `logs/NAME.log`."""
    logs = home.path / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PREFECT_WORKER_QUERY_SECONDS": os.environ.get("PREFECT_WORKER_QUERY_SECONDS", "2"),
                   "PROJECT_ROOT": str(PROJECT), "PYTHONUNBUFFERED": "1", "REASONER_HOME": str(home.path)}  # fmt: skip
    with log_of(home, name).open("ab") as log:
        # In a session of its own: the filter reads on until everything that writes to it has ended.
        through = subprocess.Popen(
            [sys.executable, "-I", "-S", str(REDACTION)], stdin=subprocess.PIPE, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    process = subprocess.Popen(
        command, cwd=PROJECT, env=environment, stdin=subprocess.DEVNULL, stdout=through.stdin,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert through.stdin is not None
    through.stdin.close()
    return Service(name, process.pid, _born(process.pid) or 0.0)


def stop(service: Service) -> None:
    """SIGTERM, which lets a worker end its runs, then SIGKILL to the whole session."""
    deadline = time.monotonic() + STOP_SECONDS
    with suppress(ProcessLookupError):
        os.kill(service.pid, signal.SIGTERM)
    while service.alive and time.monotonic() < deadline:
        time.sleep(0.1)
    with suppress(ProcessLookupError):
        os.killpg(service.pid, signal.SIGKILL)


def log_of(home: Home, name: str) -> Path:
    return home.path / "logs" / f"{name}.log"


def read(home: Home) -> list[Service]:
    """The services that still run."""
    found = [Service(**row) for row in _load(home).get("services", [])]
    return [service for service in found if service.alive]


def read_url(home: Home) -> str | None:
    """Address of the API that `up` last worked with, or None."""
    url = _load(home).get("url")
    return str(url) if url else None


def save(home: Home, url: str, services: list[Service]) -> None:
    rows = [asdict(service) for service in services]
    _file(home).write_text(json.dumps({"url": url, "services": rows}, indent=1) + "\n")


def forget(home: Home) -> None:
    _file(home).unlink(missing_ok=True)


def prefect() -> str:
    """The `prefect` command of this environment."""
    beside = Path(sys.executable).with_name("prefect")
    return str(beside) if beside.exists() else (shutil.which("prefect") or "prefect")


def _load(home: Home) -> dict[str, Any]:
    try:
        found = json.loads(_file(home).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {"services": found}


def _file(home: Home) -> Path:
    return home.path / "services.json"


def _born(pid: int) -> float | None:
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None
