"""`reasoner run`: a pipeline in this process, or `--remote` through its deployment."""

import os
import sys
import time
from typing import Any
from uuid import UUID

import httpx

from flows import ending
from flows.commands import plan, prefect_settings
from flows.commands.embedded_server import await_server, server_trouble, start_embedded_server
from flows.commands.pipelines import Pipeline, find
from flows.commands.processes import read_url
from reasoner.config.kinds import method_of
from reasoner.doctor import packages
from reasoner.errors import InfrastructureError, ReasonerError, UsageError
from reasoner.home import Home
from reasoner.planning.plan import Plan
from reasoner.records import ArtifactRef
from reasoner.redaction import redact

POLL_SECONDS = 2.0
SILENCE_SECONDS = 300
"""A server that does not answer for so long is given up; the run itself is not."""


class Detached(ReasonerError):
    """Ctrl-C while a remote run was followed; it goes on without us."""

    exit_code = ending.INTERRUPTED


def run(name: str, overrides: list[str], remote: bool) -> None:
    """Check the configuration first: a mistake in it costs a second, not the start of a server."""
    ending.listen()
    pipeline = find(name)
    pipeline.check(overrides)
    prefect_settings.prepare()
    if remote:
        _remote(name, overrides)
        return
    packages.require()
    print(
        f"{name}: starting; everything is kept in {Home.from_environment().path}", file=sys.stderr, flush=True
    )
    server = start_embedded_server()
    pipeline.flow()  # its imports take as long as the server's
    if server is not None:
        await_server(server)
    try:
        _here(pipeline, name, overrides)
    except Exception as error:
        found = server_trouble(error, server)
        if found is None:
            raise
        raise found from error


def _here(pipeline: Pipeline, name: str, overrides: list[str]) -> None:
    home = Home.from_environment()
    expected = predicted(name, overrides, home)
    started = time.monotonic()
    state: Any = pipeline.flow()(name, overrides, return_state=True)
    seconds, folder = time.monotonic() - started, home.runs / f"{name}-{state.state_details.flow_run_id}"
    done = plan.keep(expected, folder, seconds) if expected and folder.is_dir() else None
    report: ArtifactRef = state.result()
    pipeline.show(report, folder, seconds)
    if done is not None and done.actual:
        print(f"plan      {plan.summary(done)}")


def predicted(name: str, overrides: list[str], home: Home) -> Plan | None:
    """What the run is expected to take. A run does not fail because nobody can foretell it."""
    if method_of(name) in plan.UNPLANNED:
        return None
    try:
        return plan.make(name, overrides, home)
    except ReasonerError as error:
        print(f"{name}: no plan ({error})", file=sys.stderr, flush=True)
        return None


def _remote(name: str, overrides: list[str]) -> None:
    """Start the deployment and follow its run to the end."""
    url = _find_server()
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment
    from prefect.exceptions import PrefectHTTPStatusError

    try:
        with get_client(sync_client=True) as client:
            known = {f"{d.name}": d for d in client.read_deployments(limit=200)}
        if name not in known:
            raise UsageError(f"no deployment {name!r} on this server; there are: {', '.join(sorted(known)) or 'none'}."
                             " `reasoner up` deploys them.")  # fmt: skip
        parameters: dict[str, Any] = dict(known[name].parameters)
        parameters["overrides"] = [*(parameters.get("overrides") or []), *overrides]
        started: Any = run_deployment(known[name].id, parameters=parameters, timeout=0, flow_run_name=name)
    except PrefectHTTPStatusError as error:
        raise UsageError(f"the server refuses this run: {_reason(error)}") from error
    except httpx.TransportError as error:
        raise InfrastructureError(
            f"no Prefect server answers at {url} ({type(error).__name__}); `reasoner up` starts one"
        ) from error
    _say(f"{name}: flow run {started.id}")
    _say(f"{name}: {url.removesuffix('/api')}/runs/flow-run/{started.id}")
    try:
        _follow(started.id)
    except KeyboardInterrupt:
        raise Detached(
            f"no longer following; the run goes on. To cancel it: PREFECT_API_URL={url} prefect flow-run cancel "
            f"{started.id}"
        ) from None


def _find_server() -> str:
    """The address of the server: the environment's, or that of this home's `reasoner up`."""
    url = os.environ.get("PREFECT_API_URL") or read_url(Home.from_environment())
    if not url:
        raise UsageError(
            "--remote needs a Prefect server: `reasoner up` starts one here, PREFECT_API_URL names another"
        )
    os.environ["PREFECT_API_URL"] = url
    return url


def _reason(error: Any) -> str:
    """What the server says is wrong, in a line."""
    try:
        return str(error.response.json()["detail"]).splitlines()[0][:500]
    except (ValueError, KeyError, TypeError, IndexError):
        return str(error).splitlines()[0]


def _follow(run_id: UUID) -> None:
    """Say what happens to a flow run until it has ended. Raises InfrastructureError unless it has completed."""
    from prefect.client.orchestration import get_client

    shown: dict[Any, str] = {}
    heard = time.monotonic()
    with get_client(sync_client=True) as client:
        while True:
            try:
                flow_run = client.read_flow_run(run_id)
                _tell(shown, run_id, flow_run.name, flow_run.state)
                for task in _tasks(client, run_id):
                    _tell(shown, task.id, f"  {task.name}", task.state)
                heard = time.monotonic()
            except (httpx.TransportError, httpx.HTTPStatusError) as error:
                if time.monotonic() - heard > SILENCE_SECONDS:
                    raise InfrastructureError(
                        f"the server has not answered for {SILENCE_SECONDS} s ({type(error).__name__}); the run may "
                        f"go on: prefect flow-run inspect {run_id}"
                    ) from error
            else:
                if flow_run.state is not None and flow_run.state.is_final():
                    break
            time.sleep(POLL_SECONDS)
    state = flow_run.state
    if not state.is_completed():
        raise InfrastructureError(f"{flow_run.name} ended as {state.name}: {state.message}")


def _tasks(client: Any, run_id: UUID) -> list[Any]:
    from prefect.client.schemas.filters import FlowRunFilter
    from prefect.client.schemas.sorting import TaskRunSort

    wanted = FlowRunFilter.model_validate({"id": {"any_": [run_id]}})
    found: list[Any] = client.read_task_runs(
        flow_run_filter=wanted, sort=TaskRunSort.END_TIME_DESC, limit=100
    )
    return found[::-1]


def _tell(shown: dict[Any, str], which: Any, name: str, state: Any) -> None:
    """One line for each state that is news; how a stage gets there is not."""
    word = (state.name if state is not None else "") or ""
    indented = name.startswith(" ")
    if word and shown.get(which) != word and not (indented and word in ("Pending", "NotReady")):
        shown[which] = word
        _say(f"{name}: {word}")


def _say(line: str) -> None:
    print(redact(line), file=sys.stderr, flush=True)
