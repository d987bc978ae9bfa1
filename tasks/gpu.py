"""Sends one stage to the work pool that holds the accelerator, from inside the stage's own cached task.

The run graph nests the child run under the task and keeps every edge; a parent that is run again finds the stage in
the cache and starts no second child; a parent that was killed adopts its child where that is still at work.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun
from prefect.deployments import run_deployment
from prefect.flow_runs import wait_for_flow_run

from reasoner.errors import InfrastructureError
from reasoner.records import ArtifactRef
from reasoner.store import verify_ref
from tasks.context import current

if TYPE_CHECKING:
    from tasks.stage import Stage

DEPLOYMENT = "gpu-stage/gpu-stage"
UNFINISHED = ("SCHEDULED", "PENDING", "RUNNING")


def run_on_pool(stage: "Stage", arguments: dict[str, Any]) -> ArtifactRef:
    """Run `stage` as a deployment on the GPU pool and return its reference."""
    tag = f"stage:{stage.key(arguments)}"
    run = _adopt(tag) or _start(stage, arguments, tag)
    if run.state is None or not run.state.is_completed():
        message = run.state.message if run.state else "no state"
        raise InfrastructureError(
            f"{stage.label(arguments)} on pool {current().gpu_pool!r} ended as {run.state_name}: {message}"
            f" (flow run {run.name}; see its logs)"
        )
    ref = ArtifactRef.from_row(_result(run))
    verify_ref(ref)
    return ref


def _start(stage: "Stage", arguments: dict[str, Any], tag: str) -> FlowRun:
    parameters = {"stage": stage.name, "arguments": stage.encode(arguments), "folder": current().folder.name}
    started = run_deployment(
        DEPLOYMENT, parameters=parameters, tags=[tag], flow_run_name=stage.label(arguments)
    )
    return started  # type: ignore[return-value]


def _adopt(tag: str) -> FlowRun | None:
    """A child that an earlier, killed parent started for the same stage key and that is not done yet."""
    with get_client(sync_client=True) as client:
        wanted = FlowRunFilter.model_validate(
            {"tags": {"all_": [tag]}, "state": {"type": {"any_": list(UNFINISHED)}}}
        )
        runs: Iterable[FlowRun] = client.read_flow_runs(flow_run_filter=wanted, limit=1)
    for run in runs:
        return _wait(run.id)
    return None


def _wait(run_id: UUID) -> FlowRun:
    from prefect.utilities.asyncutils import run_coro_as_sync

    finished = run_coro_as_sync(wait_for_flow_run(run_id, timeout=None, poll_interval=2))
    assert finished is not None
    return finished


def _result(run: FlowRun) -> dict[str, Any]:
    assert run.state is not None
    from prefect.utilities.asyncutils import run_coro_as_sync

    value = run.state.result(raise_on_failure=True)
    if hasattr(value, "__await__"):
        value = run_coro_as_sync(value)
    return dict(value)
