"""`reasoner up` and `down`: a Prefect server, two pools, the deployments, two workers and the zombie automation.

Each line says what was done, or that it was there already. `down` ends what `up` started and nothing else.
"""

import os
import sys
import time

from flows.commands import deploying, prefect_settings, processes
from flows.commands.health import answers
from flows.commands.processes import Service
from reasoner.engines.kept.slot import clear_all
from reasoner.errors import BusyError, InfrastructureError
from reasoner.home import Home
from reasoner.process.locks import FileLock
from reasoner.redaction import redact

START_SECONDS = 300
"""Long: on a busy machine the server's imports and its new database take minutes."""
LOCAL = ("127.0.0.1", "localhost")


def up(port: int) -> None:
    """Start what is not running yet and deploy; safe to repeat."""
    prefect_settings.prepare()
    home = Home.from_environment()
    home.path.mkdir(parents=True, exist_ok=True)
    known = {service.name: service for service in processes.read(home)}
    kept = processes.read_url(home) if "server" in known else None
    url = os.environ.get("PREFECT_API_URL") or kept or f"http://127.0.0.1:{port}/api"
    os.environ["PREFECT_API_URL"] = url
    lock = FileLock(home.locks / "services.lock")
    try:
        lock.try_acquire()
    except BusyError as error:
        raise BusyError(f"another `reasoner up` is at work in {home.path}: {error}") from error
    try:
        _server(home, url, known)
        for pool in deploying.create_pools():
            _say(f"pool {pool.name}", pool.done)
        names = deploying.deploy()
        _say("deployed", f"{len(names)} deployments, version {deploying.version()}: {', '.join(names)}")
        automation = deploying.install_automation()
        _say("automation", f"{automation.name} {automation.done}")
        for name in deploying.POOLS:
            _worker(home, url, known, name)
    finally:
        lock.release()
    site = url.removesuffix("/api")
    _say("logs", str(home.path / "logs"))
    _say("UI", f"{site}/dashboard")
    _say("next", "reasoner run smart-epoch2 --remote; end it all with reasoner down. For prefect's own commands: "
                 f"export PREFECT_API_URL={url}")  # fmt: skip


def down() -> None:
    """End the processes that `up` started, workers first, the server last, and the engines that stages have left."""
    home = Home.from_environment()
    services = processes.read(home)
    for service in sorted(services, key=lambda s: s.name == "server"):
        processes.stop(service)
        _say("ended", service.name)
    for engine in clear_all(home):
        _say("ended", f"kept {engine.about}")
    if not services:
        _say("down", f"nothing that `reasoner up` started in {home.path} is running")
    processes.forget(home)


def _server(home: Home, url: str, known: dict[str, Service]) -> None:
    if answers(url):
        whose = "" if "server" in known else ", started by somebody else: `reasoner down` leaves it"
        _say("server", f"{url.removesuffix('/api')} was there already{whose}")
        return
    host, _, rest = url.split("://", 1)[-1].partition(":")
    port = rest.split("/")[0]
    if os.environ.get("REASONER_SERVER") == "external" or host not in LOCAL or not port.isdigit():
        raise InfrastructureError(f"no Prefect server answers at {url}; start it, or unset PREFECT_API_URL")
    server = known.get("server")
    if server is None:
        server = processes.start(
            home, "server", [sys.executable, "-m", "flows.server", "start", "--host", host, "--port", port]
        )
        known["server"] = server
        processes.save(home, url, list(known.values()))
    _wait_for(url, server, home)
    _say("server", f"{url.removesuffix('/api')} started (process {server.pid})")


def _worker(home: Home, url: str, known: dict[str, Service], pool: str) -> None:
    name = f"worker-{pool}"
    if name in known:
        _say(name, f"was there already (process {known[name].pid})")
        return
    module = ["-m", "flows.worker", "--pool", pool, "--name", f"{name}-{os.uname().nodename}"]
    known[name] = processes.start(home, name, [sys.executable, *module])
    processes.save(home, url, list(known.values()))
    _say(name, f"started (process {known[name].pid})")


def _wait_for(url: str, server: Service, home: Home) -> None:
    deadline, log = time.monotonic() + START_SECONDS, processes.log_of(home, "server")
    while not answers(url):
        if not server.alive:
            lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            raise InfrastructureError(
                f"the Prefect server ended at once (is the port taken? --port chooses another): "
                f"{lines[-1] if lines else 'it said nothing'} (log: {log})"
            )
        if time.monotonic() > deadline:
            raise InfrastructureError(
                f"the Prefect server did not answer in {START_SECONDS} s; see {log}; `reasoner up` again waits on"
            )
        time.sleep(0.3)


def _say(what: str, line: str) -> None:
    print(redact(f"{what:<11} {line}"), file=sys.stderr, flush=True)
