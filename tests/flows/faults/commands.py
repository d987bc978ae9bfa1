"""`reasoner` commands forked from one process that has imported everything: a cell of the matrix costs no imports.

As a program it reads requests as JSON lines from its standard input, forks a command for each, which gets a session, a
log and an environment of its own, and says its pid and, once it has ended, its status. What runs in the fork is the
console script's `main`; faults are planted by `planting.plant` before it is called.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.flows.faults import confine

ROOT = Path(__file__).resolve().parents[3]
POLL = 0.02
START_SECONDS = 900
"""The imports take a while on a busy machine."""


@dataclass
class Command:
    """A command that was started; `status` is None while it runs, negative for a signal."""

    pid: int
    log: Path
    status: int | None = None
    process: subprocess.Popen[bytes] | None = None


class Commands:
    """The process that forks commands, seen from the tests."""

    def __init__(self, api: str, log: Path) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        env = {**inherited, "PREFECT_API_URL": api, "PYTHONPATH": str(ROOT)}
        self._environment = env
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.flows.faults.commands"],
                env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, bufsize=0,
            )  # fmt: skip
        self._running: dict[int, Command] = {}
        self._buffer = b""
        assert self._read(START_SECONDS) == {"ready": True}, log.read_text()[-2000:]

    def start(self, request: dict[str, Any]) -> Command:
        """Fork a command (see `request_of`)."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        while True:
            answer = self._read(START_SECONDS)
            assert answer is not None, "no command was forked"
            if "started" in answer:
                command = Command(answer["started"], Path(request["log"]))
                self._running[command.pid] = command
                return command
            self._note(answer)

    def start_apart(self, request: dict[str, Any], **env: str) -> Command:
        """The same in a program of its own, for what must be there when a program begins: a preloaded library, or a
        server of its own (with an empty `PREFECT_API_URL`)."""
        environment = {**self._environment, **env}
        own = {name: value for name, value in environment.items() if value}
        command = [sys.executable, "-m", "tests.flows.faults.commands", json.dumps(request)]
        process = subprocess.Popen(
            command, env=own, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        return Command(process.pid, Path(request["log"]), process=process)

    def wait(self, command: Command, seconds: float) -> int:
        """Its exit status; after `seconds` it fails with what the command said last."""
        try:
            return self._wait(command, seconds)
        except (TimeoutError, subprocess.TimeoutExpired):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(command.pid, signal.SIGKILL)  # or it would work in the next cell's home
            raise AssertionError(f"ran for {seconds} s: {command.log.read_text()[-3000:]}") from None

    def _wait(self, command: Command, seconds: float) -> int:
        if command.process is not None:
            return command.process.wait(seconds)
        deadline = time.monotonic() + seconds
        while command.status is None:
            answer = self._read(max(0.0, deadline - time.monotonic()))
            if answer is None:
                raise TimeoutError
            self._note(answer)
        return command.status

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _note(self, answer: dict[str, Any]) -> None:
        self._running.pop(answer["ended"]).status = answer["status"]

    def _read(self, seconds: float) -> dict[str, Any] | None:
        """The next line of the other side, or None after `seconds`."""
        assert self._process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            if not select.select([self._process.stdout], [], [], max(0.0, end - time.monotonic()))[0]:
                return None
            data = os.read(self._process.stdout.fileno(), 65536)
            assert data, "the process that forks commands has died; see its log"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


def request_of(
    argv: list[str], log: Path, home: Path, fault: dict[str, Any], *, disk: int = 0, obedient: bool = False
) -> dict[str, Any]:
    """What is to be started: `reasoner ARGV` with `fault` planted in it (see `planting.plant`).

    `disk` is the pid of a `SmallDisk` to live on; `obedient` makes root obey file permissions.
    """
    return {
        "argv": argv,
        "log": str(log),
        "home": str(home),
        "fault": fault,
        "disk": disk,
        "obedient": obedient,
    }


def run_command(request: dict[str, Any]) -> int:
    """In the fork: become a command of its own and run it to its end."""
    os.setsid()
    out = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, fd in ((0, null), (1, out), (2, out)):
        os.dup2(fd, target)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    if request["disk"]:
        confine.join(request["disk"])
    if request["obedient"]:
        confine.obey_permissions()
    os.environ["REASONER_HOME"] = request["home"]
    sys.argv = ["reasoner", *request["argv"]]
    from flows import cli
    from flows.commands import run
    from tests.flows.faults import planting

    here = run._here

    def planted(*arguments: Any) -> None:
        planting.plant(**request["fault"])
        here(*arguments)

    run._here = planted
    try:
        cli.main()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    return 0


def fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        code = run_command(request)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(70)
    # As at the end of a program: what Prefect and others have registered is called, threads are joined.
    sys.exit(code)


def serve() -> None:
    """Import what a run needs, then fork until standard input ends."""
    from flows.commands import prefect_settings

    prefect_settings.prepare()
    import transformers  # noqa: F401
    from transformers import AutoTokenizer  # noqa: F401

    import flows.multiturn
    import flows.planner
    import flows.smart  # noqa: F401

    def say(**facts: Any) -> None:
        os.write(1, json.dumps(facts).encode() + b"\n")

    say(ready=True)
    waiting, buffer = 0, b""
    while True:
        ready, _, _ = select.select([0], [], [], POLL if waiting else None)
        if ready:
            data = os.read(0, 65536)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for line in lines:
                pid = fork(json.loads(line))
                waiting += 1
                say(started=pid)
        while waiting:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            waiting -= 1
            say(ended=pid, status=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(run_command(json.loads(sys.argv[1])))
    serve()
