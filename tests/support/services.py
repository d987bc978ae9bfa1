"""`reasoner up` for tests: a real server with pools, deployments and workers on a port and in folders of its own."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
import psutil

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
Found = TypeVar("Found")
PATIENCE = 400
"""Seconds: a loaded machine is no reason to fail."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(look: Callable[[], Found], what: str, seconds: float = PATIENCE) -> Found:
    """What `look` returns, as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, f"not in {seconds:.0f} s: {what}"
        time.sleep(0.3)
    return found


def ask(method: str, url: str, **body: object) -> Any:
    """What a Prefect server answers, asked again while it says 503: another held SQLite's lock for too long."""
    deadline = time.monotonic() + PATIENCE
    while (reply := httpx.request(method, url, json=body or None, timeout=60)).status_code == 503:
        assert time.monotonic() < deadline, f"still busy after {PATIENCE} s: {url}"
        time.sleep(0.5)
    reply.raise_for_status()
    return reply.json() if reply.content else None


class Services:
    """Commands with the environment of one `reasoner up`, and questions to its server."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.home, self.port = folder / "home", free_port()
        self.url = f"http://127.0.0.1:{self.port}/api"
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
        self.environment = {
            **kept, "REASONER_HOME": str(self.home), "PREFECT_HOME": str(folder / "prefect"), "PYTHONPATH": str(ROOT),
            "PREFECT_WORKER_QUERY_SECONDS": "1", **environment,
        }  # fmt: skip

    def run(self, *command: str, **more: str) -> subprocess.CompletedProcess[str]:
        env = {**self.environment, **more}
        return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=1800)

    def reasoner(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-c", "from flows.cli import main; main()", *arguments)

    def prefect(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run(str(BIN / "prefect"), *arguments, PREFECT_API_URL=self.url)

    def start(self, *arguments: str, log: Path) -> subprocess.Popen[bytes]:
        """`reasoner ARGUMENTS` in the background."""
        with log.open("wb") as out:
            return subprocess.Popen(
                [sys.executable, "-c", "from flows.cli import main; main()", *arguments], env=self.environment,
                cwd=ROOT, stdout=out, stderr=out, start_new_session=True,
            )  # fmt: skip

    def get(self, path: str, **body: object) -> Any:
        return ask("POST" if body else "GET", f"{self.url}/{path}", **body)

    def runs(self, **filters: object) -> list[dict[str, Any]]:
        body: dict[str, Any] = {"sort": "EXPECTED_START_TIME_ASC", "limit": 200}
        return list(self.get("flow_runs/filter", **body, **({"flow_runs": filters} if filters else {})))

    def state(self, run_id: str) -> str:
        return str(self.get(f"flow_runs/{run_id}")["state"]["type"])

    def children(self, parent: str) -> list[dict[str, Any]]:
        return self.runs(parent_flow_run_id={"any_": [parent]})

    def process_of(self, run_id: str) -> psutil.Process | None:
        """The process that carries out a flow run on one of the workers."""
        for worker in self.workers().values():
            for process in worker.children(recursive=True):
                try:
                    if process.environ().get("PREFECT__FLOW_RUN_ID") == run_id:
                        return process
                except psutil.Error:
                    continue
        return None

    def workers(self) -> dict[str, psutil.Process]:
        rows = json.loads((self.home / "services.json").read_text())["services"]
        return {row["name"]: psutil.Process(row["pid"]) for row in rows if row["name"].startswith("worker-")}


def tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def interrupt(process: subprocess.Popen[bytes]) -> int:
    """Ctrl-C, and the exit status."""
    os.killpg(process.pid, signal.SIGINT)
    return process.wait(PATIENCE)
