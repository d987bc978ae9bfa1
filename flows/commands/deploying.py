"""What `reasoner up` puts on a server: work pools with their limits, the deployments, the automations."""

import os
import subprocess
from dataclasses import dataclass
from datetime import timedelta
from importlib import metadata
from typing import Any

from flows.commands.processes import PROJECT, prefect
from reasoner.errors import InfrastructureError

POOLS: dict[str, int | None] = {"cpu": None, "gpu": 1}
"""Work pools with their concurrency limits: one run at a time on `gpu`, one accelerator."""
SILENCE = timedelta(seconds=90)
"""Three heartbeats of 30 s; shorter windows crash healthy runs."""


@dataclass(frozen=True, slots=True)
class Told:
    """What was done about one thing, in words for the terminal."""

    name: str
    done: str


def create_pools() -> list[Told]:
    """Create the pools that are missing and set their limits. They must be there before anything is deployed."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate, WorkPoolUpdate
    from prefect.exceptions import ObjectNotFound
    from prefect.workers.process import ProcessWorker

    told = []
    with get_client(sync_client=True) as client:
        for name, limit in POOLS.items():
            width = f"{limit} run at a time" if limit else "no limit"
            try:
                there = client.read_work_pool(name)
            except ObjectNotFound:
                template = ProcessWorker.get_default_base_job_template()
                client.create_work_pool(
                    WorkPoolCreate(
                        name=name, type="process", concurrency_limit=limit, base_job_template=template
                    )
                )
                told.append(Told(name, f"created, {width}"))
                continue
            if there.concurrency_limit != limit:
                client.update_work_pool(name, WorkPoolUpdate(concurrency_limit=limit))
                told.append(Told(name, f"was there already, limit changed to {width}"))
            else:
                told.append(Told(name, f"was there already, {width}"))
    return told


def deploy() -> list[str]:
    """`prefect deploy --all` on the project's prefect.yaml; returns the names."""
    import yaml

    environment = {**os.environ, "PROJECT_ROOT": str(PROJECT), "REASONER_VERSION": version()}
    done = subprocess.run(
        [prefect(), "--no-prompt", "deploy", "--all"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise InfrastructureError(f"prefect deploy failed: {last_line(done.stdout + done.stderr)}")
    return [d["name"] for d in yaml.safe_load((PROJECT / "prefect.yaml").read_text())["deployments"]]


def last_line(said: str) -> str:
    """The last line that says something: Prefect ends with the frame of a traceback, or that there was one."""
    lines = [line.strip(" |+-\t") for line in said.splitlines()]
    return next(
        (line for line in reversed(lines) if line and line != "An exception occurred."), "no word of it"
    )


def version() -> str:
    """The package's version, which the deployments carry."""
    try:
        return metadata.version("reasoner")
    except metadata.PackageNotFoundError:  # run from a folder that was not installed
        import tomllib

        project: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
        return str(project["version"])


def install_automation() -> Told:
    """A run whose process died without a word stops being `Running`, which would hold the gpu slot for ever."""
    from prefect.automations import Automation, EventTrigger, Posture
    from prefect.client.schemas.objects import StateType
    from prefect.events.actions import ChangeFlowRunState
    from prefect.utilities.asyncutils import run_coro_as_sync

    seconds = int(SILENCE.total_seconds())
    endings = ("heartbeat", "Completed", "Failed", "Cancelled", "Crashed")
    wanted = Automation(
        name="zombie-runs",
        description=f"A flow run without a heartbeat for {seconds} seconds is crashed (three heartbeats)",
        trigger=EventTrigger(
            after={"prefect.flow-run.heartbeat"}, expect={f"prefect.flow-run.{end}" for end in endings},
            match={"prefect.resource.id": ["prefect.flow-run.*"]}, for_each={"prefect.resource.id"},
            posture=Posture.Proactive, threshold=1, within=SILENCE,
        ),
        actions=[
            ChangeFlowRunState(
                name=None, state=StateType.CRASHED, message=f"no heartbeat for {seconds} s", force=False
            )
        ],
    )  # fmt: skip
    try:
        there: Any = run_coro_as_sync(Automation.aread(name=wanted.name))
    except ValueError:
        run_coro_as_sync(wanted.acreate())
        return Told(wanted.name, f"created: no heartbeat for {seconds} s makes a run Crashed")
    if getattr(there.trigger, "within", None) == SILENCE and there.enabled:
        return Told(wanted.name, "was there already")
    run_coro_as_sync(there.adelete())
    run_coro_as_sync(wanted.acreate())
    return Told(wanted.name, "made anew: it was switched off or changed")
