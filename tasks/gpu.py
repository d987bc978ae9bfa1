"""Sends one stage to the work pool that holds the accelerator, from inside the stage's own cached task.

The run graph nests the child run under the task and keeps every edge; a parent that is run again finds the stage in
the cache and starts no second child; a parent that was killed adopts its child where that is still at work. A parent
that is told to end (cancelled, SIGTERM, Ctrl-C) cancels its child; one that is killed leaves it for the next.
"""

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.sorting import FlowRunSort
from prefect.deployments import run_deployment
from prefect.exceptions import PrefectHTTPStatusError

from reasoner.errors import InfrastructureError
from reasoner.records import ArtifactRef
from reasoner.store import verify_ref
from tasks.context import current

if TYPE_CHECKING:
    from tasks.stage import Stage

DEPLOYMENT = "gpu-stage/gpu-stage"
UNFINISHED = ("SCHEDULED", "PENDING", "RUNNING")
POLL_SECONDS = 1.0
"""Asking is the whole cost of waiting; Prefect's own wait listens to events only, and misses the end of a run where the
server was restarted meanwhile."""
SILENCE_SECONDS = 300.0
"""A server that does not answer for so long ends the parent; the child works on and is adopted by the next one."""


def run_on_pool(stage: "Stage", arguments: dict[str, Any]) -> ArtifactRef:
    """Run `stage` as a deployment on the GPU pool and return its reference."""
    tag, label = f"stage:{stage.key(arguments)}", stage.label(arguments)
    run = None
    known = find_unfinished(tag)
    if known is not None:
        current().progress.say(f"{label}: flow run {known.name} is still at work on it; waiting for that")
        run = follow(known.id)
    if run is None or run.state is None or not run.state.is_completed():
        # None to adopt, or it ended badly: it was another parent's, and its machine or worker may be gone. Once.
        run = follow(_start(stage, arguments, tag).id)
    if run.state is None or not run.state.is_completed():
        message = run.state.message if run.state else "no state"
        raise InfrastructureError(
            f"{label} on pool {current().gpu_pool!r} ended as {run.state_name}: {message}"
            f" (flow run {run.name} {run.id}; see its logs)"
        )
    ref = ArtifactRef.from_row(_result(run))
    verify_ref(ref)
    return ref


def find_unfinished(tag: str) -> FlowRun | None:
    """The child that an earlier, killed parent started for the same stage key and that is not done yet."""
    wanted = FlowRunFilter.model_validate(
        {"tags": {"all_": [tag]}, "state": {"type": {"any_": list(UNFINISHED)}}}
    )
    with get_client(sync_client=True) as client:
        # The newest: where there are several, the older ones belong to machines that are gone.
        runs = client.read_flow_runs(
            flow_run_filter=wanted, sort=FlowRunSort.EXPECTED_START_TIME_DESC, limit=1
        )
    return runs[0] if runs else None


def follow(run_id: UUID) -> FlowRun:
    """Wait for the end of a flow run. Interrupted, it cancels the run and passes the interruption on."""
    heard = time.monotonic()
    with get_client(sync_client=True) as client:
        try:
            while True:
                try:
                    run = client.read_flow_run(run_id)
                    heard = time.monotonic()
                    if run.state is not None and run.state.is_final():
                        return run
                except (httpx.TransportError, PrefectHTTPStatusError) as error:
                    if time.monotonic() - heard > SILENCE_SECONDS:
                        raise InfrastructureError(
                            f"the Prefect server has not answered for {SILENCE_SECONDS:.0f} s: {error}; "
                            "run the same command again when it does"
                        ) from error
                time.sleep(POLL_SECONDS)
        except Exception:
            raise
        except BaseException:  # SIGTERM and Ctrl-C, as Prefect and Python raise them
            cancel(client, run_id)
            raise


def cancel(client: SyncPrefectClient, run_id: UUID) -> None:
    """Ask for the end of a flow run; one that has not begun is cancelled at once. Never raises."""
    with suppress(Exception):
        client.set_flow_run_state(run_id, State(type=StateType.CANCELLING, message="its parent was ended"))


def cancel_children(flow: Any, flow_run: FlowRun, state: State | None) -> None:
    """Hook for `on_cancellation`: ends the children of a parent that could not do it itself."""
    wanted = FlowRunFilter.model_validate(
        {"parent_flow_run_id": {"any_": [flow_run.id]}, "state": {"type": {"any_": list(UNFINISHED)}}}
    )
    with get_client(sync_client=True) as client:
        for child in client.read_flow_runs(flow_run_filter=wanted):
            cancel(client, child.id)


def _start(stage: "Stage", arguments: dict[str, Any], tag: str) -> FlowRun:
    tracking, compute = current().tracking, current().compute
    parameters = {
        "stage": stage.name, "arguments": stage.encode(arguments), "folder": current().folder.name,
        "wandb_project": tracking.project if tracking else None,
        "processes": compute.processes, "sharding": compute.sharding, "engines": compute.engines,
        "idle_seconds": compute.idle_seconds,
    }  # fmt: skip
    started: Any = run_deployment(
        DEPLOYMENT, parameters=parameters, tags=[tag], flow_run_name=stage.label(arguments), timeout=0
    )
    return started


def _result(run: FlowRun) -> dict[str, Any]:
    assert run.state is not None
    from prefect.utilities.asyncutils import run_coro_as_sync

    value = run.state.result(raise_on_failure=True)
    if hasattr(value, "__await__"):
        value = run_coro_as_sync(value)
    return dict(value)
