"""`reasoner run`: a pipeline in this process, or `--remote` through its deployment."""

import sys
import time
from collections.abc import Callable
from typing import Any

from flows.commands import plan, prefect_settings
from flows.commands.embedded_server import start_embedded_server
from flows.commands.pipelines import Pipeline, find
from reasoner.errors import InfrastructureError, ReasonerError, UsageError
from reasoner.home import Home
from reasoner.planning.plan import Plan
from reasoner.records import ArtifactRef


def run(name: str, overrides: list[str], remote: bool) -> None:
    """Check the configuration first: a mistake in it costs a second, not the start of a server."""
    pipeline = find(name)
    pipeline.check(overrides)
    prefect_settings.prepare()
    if remote:
        _remote(name, overrides)
        return
    print(
        f"{name}: starting; everything is kept in {Home.from_environment().path}", file=sys.stderr, flush=True
    )
    start_embedded_server()
    _here(pipeline, name, overrides)


def _here(pipeline: Pipeline, name: str, overrides: list[str]) -> None:
    home = Home.from_environment()
    predicted = _predicted(name, overrides, home)
    started = time.monotonic()
    state: Any = pipeline.flow()(name, overrides, return_state=True)
    seconds, folder = time.monotonic() - started, home.runs / f"{name}-{state.state_details.flow_run_id}"
    done = plan.keep(predicted, folder, seconds) if predicted and folder.is_dir() else None
    report: ArtifactRef = state.result()
    pipeline.show(report, folder, seconds)
    if done is not None and done.actual:
        print(f"plan      {plan.summary(done)}")


def _predicted(name: str, overrides: list[str], home: Home) -> Plan | None:
    """What the run is expected to take. A run does not fail because nobody can foretell it."""
    try:
        return plan.make(name, overrides, home, benchmark=False)
    except ReasonerError as error:
        print(f"{name}: no plan ({error})", file=sys.stderr, flush=True)
        return None


def _remote(name: str, overrides: list[str]) -> None:
    """Start the deployment and follow its run to the end."""
    from prefect.client.orchestration import get_client
    from prefect.deployments import run_deployment

    with get_client(sync_client=True) as client:
        known = {f"{d.name}": d for d in client.read_deployments()}
    if name not in known:
        raise UsageError(f"no deployment {name!r} on this server; there are: {', '.join(sorted(known)) or 'none'}."
                         " `reasoner up` deploys them.")  # fmt: skip
    parameters: dict[str, Any] = dict(known[name].parameters)
    parameters["overrides"] = [*parameters.get("overrides", []), *overrides]
    started: Any = run_deployment(known[name].id, parameters=parameters, timeout=0)
    print(f"{name}: flow run {started.name} ({started.id})", file=sys.stderr, flush=True)
    _follow(started.id)


def _follow(
    run_id: Any, say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True)
) -> None:
    from prefect.client.orchestration import get_client

    shown = ""
    with get_client(sync_client=True) as client:
        while True:
            flow_run = client.read_flow_run(run_id)
            state = flow_run.state
            if state is not None and state.name != shown:
                shown = state.name or ""
                say(f"{flow_run.name}: {shown}")
            if state is not None and state.is_final():
                break
            time.sleep(2)
    if not state.is_completed():
        raise InfrastructureError(f"{flow_run.name} ended as {state.name}: {state.message}")
