"""`reasoner up` and `down`: a Prefect server, two pools, the deployments, two workers and the zombie automation.

What was started is written to `services.json` in the home folder; `down` ends those processes and nothing else.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from flows.commands import prefect_settings
from reasoner.errors import InfrastructureError
from reasoner.home import Home

POOLS = {"cpu": None, "gpu": 1}
"""Work pools with their concurrency limits: one run at a time on `gpu`, one accelerator."""
PROJECT = Path(__file__).resolve().parents[2]
START_SECONDS = 60
STOP_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Service:
    """A process that `up` started. `born` tells it from a later process that was given the same number."""

    name: str
    pid: int
    born: float


def up(port: int) -> None:
    """Start what is not running yet and deploy; safe to repeat."""
    prefect_settings.prepare()
    home = Home.from_environment()
    home.path.mkdir(parents=True, exist_ok=True)
    url = os.environ.get("PREFECT_API_URL") or f"http://127.0.0.1:{port}/api"
    os.environ["PREFECT_API_URL"] = url
    kept = [service for service in _read(home) if _alive(service)]
    if not _answers(url):
        if os.environ.get("REASONER_SERVER") == "external" or (
            "127.0.0.1" not in url and "localhost" not in url
        ):
            raise InfrastructureError(
                f"no Prefect server answers at {url}; start it, or unset PREFECT_API_URL"
            )
        port = int(url.split(":")[2].split("/")[0])
        kept.append(_start(home, "server", ["server", "start", "--host", "127.0.0.1", "--port", str(port)]))
        _save(home, kept)
        _wait_for(url, home)
    _say(f"server   {url.removesuffix('/api')}")
    _create_pools()
    _say(f"pools    {', '.join(POOLS)}")
    _say(f"deployed {', '.join(_deploy())}")
    _install_automation()
    for pool in POOLS:
        name = f"worker-{pool}"
        if not any(service.name == name for service in kept):
            arguments = [
                "worker",
                "start",
                "--pool",
                pool,
                "--type",
                "process",
                "--name",
                f"{name}-{os.uname().nodename}",
            ]
            kept.append(_start(home, name, arguments))
            _save(home, kept)
    _say(
        f"workers  {', '.join(s.name for s in kept if s.name.startswith('worker'))} (logs in {home.path / 'logs'})"
    )
    _say(
        f"next     export PREFECT_API_URL={url}; prefect deployment run smart/smart-epoch2; end it with reasoner down"
    )


def down() -> None:
    """End the processes that `up` started: workers first, the server last."""
    home = Home.from_environment()
    services = [service for service in _read(home) if _alive(service)]
    for service in sorted(services, key=lambda s: s.name == "server"):
        _stop(service)
        _say(f"ended {service.name}")
    if not services:
        _say("nothing that `reasoner up` started is running")
    _file(home).unlink(missing_ok=True)


def _create_pools() -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectNotFound
    from prefect.workers.process import ProcessWorker

    with get_client(sync_client=True) as client:
        for name, limit in POOLS.items():
            try:
                client.read_work_pool(name)
                client.update_work_pool(name, WorkPoolUpdate(concurrency_limit=limit))
            except ObjectNotFound:
                template = ProcessWorker.get_default_base_job_template()
                client.create_work_pool(
                    WorkPoolCreate(
                        name=name, type="process", concurrency_limit=limit, base_job_template=template
                    )
                )


def _deploy() -> list[str]:
    """`prefect deploy --all` on the project's prefect.yaml; returns the names."""
    import yaml

    environment = {**os.environ, "PROJECT_ROOT": str(PROJECT)}
    done = subprocess.run(
        [_prefect(), "--no-prompt", "deploy", "--all"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise InfrastructureError(
            f"prefect deploy failed: {(done.stderr or done.stdout).strip().splitlines()[-1]}"
        )
    return [d["name"] for d in yaml.safe_load((PROJECT / "prefect.yaml").read_text())["deployments"]]


def _install_automation() -> None:
    """A run whose process died without a word stops being `Running`, which would hold the gpu slot for ever."""
    from prefect.automations import Automation, EventTrigger, Posture
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.utilities.asyncutils import run_coro_as_sync

    endings = ("heartbeat", "Completed", "Failed", "Cancelled", "Crashed")
    wanted = Automation(
        name="zombie-runs",
        description="A flow run without a heartbeat for 90 seconds is crashed (three heartbeats of 30 seconds)",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"}, expect={f"prefect.flow-run.{end}" for end in endings},
            match={"prefect.resource.id": ["prefect.flow-run.*"]}, for_each={"prefect.resource.id"},
            posture=Posture.Proactive, threshold=1, within=timedelta(seconds=90),
        ),
        actions=[
            ChangeFlowRunState(name=None, state=StateType.CRASHED, message="no heartbeat for 90 s", force=False)
        ],
    )  # fmt: skip
    try:
        run_coro_as_sync(Automation.aread(name=wanted.name))
    except ValueError:
        run_coro_as_sync(wanted.acreate())


def _start(home: Home, name: str, arguments: list[str]) -> Service:
    logs = home.path / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PREFECT_WORKER_QUERY_SECONDS": os.environ.get("PREFECT_WORKER_QUERY_SECONDS", "2"),
                   "PROJECT_ROOT": str(PROJECT), "PYTHONUNBUFFERED": "1"}  # fmt: skip
    with (logs / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            [_prefect(), *arguments], cwd=PROJECT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            start_new_session=True,
        )  # fmt: skip
    return Service(name, process.pid, _born(process.pid) or 0.0)


def _stop(service: Service) -> None:
    """SIGTERM, which lets a worker end its runs, then SIGKILL to the whole session."""
    deadline = time.monotonic() + STOP_SECONDS
    os.kill(service.pid, signal.SIGTERM)
    while _alive(service) and time.monotonic() < deadline:
        time.sleep(0.1)
    with suppress(ProcessLookupError):
        os.killpg(service.pid, signal.SIGKILL)


def _alive(service: Service) -> bool:
    return _born(service.pid) == service.born


def _born(pid: int) -> float | None:
    import psutil

    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.NoSuchProcess:
        return None


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _wait_for(url: str, home: Home) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _answers(url):
        if time.monotonic() > deadline:
            raise InfrastructureError(f"the Prefect server did not answer in {START_SECONDS} s; "
                                      f"see {home.path / 'logs' / 'server.log'}")  # fmt: skip
        time.sleep(0.3)


def _prefect() -> str:
    beside = Path(sys.executable).with_name("prefect")
    return str(beside) if beside.exists() else (shutil.which("prefect") or "prefect")


def _file(home: Home) -> Path:
    return home.path / "services.json"


def _read(home: Home) -> list[Service]:
    if not _file(home).exists():
        return []
    return [Service(**row) for row in json.loads(_file(home).read_text())]


def _save(home: Home, services: list[Service]) -> None:
    rows: list[dict[str, Any]] = [asdict(service) for service in services]
    _file(home).write_text(json.dumps(rows, indent=1))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
