"""The Prefect server of a run that was given none: a guarded child of this process, in a session of its own.

Prefect's own temporary server shares the terminal's process group, so that Ctrl-C ends it before the run can say that
it was interrupted, and outlives a killed run. This one ends with this process, however that ends. Its database stays
in the home folder.
"""

import atexit
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from flows.commands.health import answers
from flows.commands.processes import PROJECT
from reasoner.errors import ChildFailedError, InfrastructureError
from reasoner.home import Home
from reasoner.process.child import Child, start_child

START_SECONDS = 120
"""Long: on a busy machine the imports alone take 20 s."""
POLL_SECONDS = 0.1
GRACE = 3.0


def start_embedded_server() -> Child | None:
    """Begin to serve Prefect's API from the home folder until this process ends; None where the user has set a server.

    Call it before Prefect is imported, which reads the address once, and `await_server` before it is asked.
    """
    if "PREFECT_API_URL" in os.environ or os.environ.get("PREFECT_HOME") != str(_folder()):
        return None
    port = _free_port()
    settings = {name: value for name, value in os.environ.items() if name.startswith("PREFECT_")}
    quiet = {"PREFECT_UI_ENABLED": "0", "PREFECT__SERVER_EPHEMERAL": "1", "PREFECT__SERVER_FINAL": "1"}
    command = [sys.executable, "-m", "uvicorn", "--app-dir", str(PROJECT), "--factory", "flows.server:create_app",
               "--host", "127.0.0.1", "--port", str(port), "--log-level", "error", "--lifespan", "on"]  # fmt: skip
    child = start_child(
        command, log=_folder() / "server.log", env={**settings, **quiet, "DO_NOT_TRACK": "1"}, grace=GRACE
    )
    # Prefect sends its last logs when threads are joined, before these functions are called.
    atexit.register(child.terminate)
    os.environ["PREFECT_API_URL"] = f"http://127.0.0.1:{port}/api"
    return child


def await_server(child: Child) -> None:
    """Wait until the server answers. Raises InfrastructureError."""
    url, deadline = os.environ["PREFECT_API_URL"], time.monotonic() + START_SECONDS
    while True:
        if answers(url):
            return
        try:
            child.check()
        except ChildFailedError as error:
            raise InfrastructureError(f"the Prefect server of this run did not start: {error}") from error
        if time.monotonic() > deadline:
            raise InfrastructureError(
                f"the Prefect server of this run did not answer in {START_SECONDS} s; see {child.log}"
            )
        time.sleep(POLL_SECONDS)


def server_trouble(error: BaseException, server: Child | None) -> InfrastructureError | None:
    """The error for a run that lost its Prefect server, `server` or the user's; None where it has not."""
    import httpx

    again = "The same command goes on from where it was."
    if server is not None and server.poll() is not None:
        return InfrastructureError(f"the Prefect server of this run has died. {again} {server.failure()}")
    url, cause = os.environ.get("PREFECT_API_URL", ""), error
    while cause is not None:
        if isinstance(cause, httpx.TransportError) and url and _asked(cause).startswith(url):
            return InfrastructureError(
                f"the Prefect server at {url} does not answer ({cause}). Start it. {again}"
            )
        cause = cause.__cause__ or cause.__context__  # type: ignore[assignment]
    return None


def _asked(error: Any) -> str:
    """The address of a failed request."""
    try:
        return str(error.request.url)
    except RuntimeError:  # httpx's answer where there is none
        return ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _folder() -> Path:
    return Home.from_environment().prefect
