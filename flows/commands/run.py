"""`reasoner run`: a pipeline in this process, or `--remote` through its deployment."""

import signal
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from flows.commands import prefect_settings
from flows.commands.embedded_server import server_trouble, start_embedded_server
from flows.commands.pipelines import Pipeline, find
from reasoner.errors import InfrastructureError, UsageError
from reasoner.home import Home
from reasoner.records import ArtifactRef

TERMINATED = 128 + signal.SIGTERM


def run(name: str, overrides: list[str], remote: bool) -> None:
    """Check the configuration first: a mistake in it costs a second, not the start of a server."""
    signal.signal(signal.SIGTERM, _end)
    pipeline = find(name)
    pipeline.check(overrides)
    prefect_settings.prepare()
    if remote:
        _remote(name, overrides)
        return
    print(
        f"{name}: starting; everything is kept in {Home.from_environment().path}", file=sys.stderr, flush=True
    )
    server = start_embedded_server()
    try:
        _here(pipeline, name, overrides)
    except Exception as error:
        found = server_trouble(error, server)
        if found is None:
            raise
        raise found from error


def _end(number: int, frame: object) -> NoReturn:
    """On SIGTERM. In a flow Prefect's own handler comes first, which ends the run and then calls this one."""
    print(
        "reasoner: ended by SIGTERM; the same command goes on from where it was", file=sys.stderr, flush=True
    )
    sys.exit(TERMINATED)


def _here(pipeline: Pipeline, name: str, overrides: list[str]) -> None:
    started, home = time.monotonic(), Home.from_environment()
    state: Any = pipeline.flow()(name, overrides, return_state=True)
    report: ArtifactRef = state.result()
    run_id = state.state_details.flow_run_id
    pipeline.show(report, home.runs / f"{name}-{run_id}", time.monotonic() - started)


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
