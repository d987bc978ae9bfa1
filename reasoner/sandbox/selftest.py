"""What the sandbox of this machine really does: named behaviours, each tried with something that would show a
breach. `reasoner doctor` prints them; a manifest holds the backend's name.

The long list of hostile programs is in tests/sandbox/; this is the part that is quick enough for every start.
"""

import os
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from reasoner.sandbox.jobs import Status
from reasoner.sandbox.namespaces import ProcessNamespace
from reasoner.sandbox.process import ENVIRONMENT, Stopped
from reasoner.sandbox.sandbox import Sandbox
from reasoner.sandbox.session import Session

NOBODY = 65534


@dataclass(frozen=True, slots=True)
class Check:
    """One behaviour: `passed` is None where this machine cannot offer it, and `detail` says what was seen."""

    name: str
    passed: bool | None
    detail: str = ""

    def __str__(self) -> str:
        word = {True: "passed", False: "FAILED", None: "not available"}[self.passed]
        return f"{self.name}: {word}" + (f" ({self.detail})" if self.detail else "")


@cache
def self_test() -> tuple[Check, ...]:
    """Try the walls of this machine's sandbox, once a process; takes about a second.

    Raises SandboxUnavailableError where there is no sandbox at all.
    """
    sandbox = Sandbox.detect()
    return (*_walls(sandbox), *_killing(sandbox))


def passed(checks: tuple[Check, ...]) -> bool:
    """Whether nothing failed; what is not available does not count."""
    return all(check.passed is not False for check in checks)


def _walls(sandbox: Sandbox) -> Iterator[Check]:
    source = resources.files("reasoner.sandbox.inside").joinpath("probe.py").read_text(encoding="utf-8")
    limits = replace(sandbox.limits, wall_seconds=20.0)
    with Session(sandbox, source, limits=limits) as session:

        def seen(expression: str) -> Any:
            result = session.evaluate(expression)
            return result.value if result.ok else f"{result.status}: {result.type_name} {result.message}"

        yield from _network(seen)
        yield from _files(seen)
        yield from _identity(seen, sandbox)
        yield from _resources(seen, sandbox)


def _network(seen: Any) -> Iterator[Check]:
    with closing(socket.socket()) as tcp, closing(socket.socket(socket.AF_UNIX)) as unix:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        name = f"\0reasoner-self-test-{os.getpid()}-{time.monotonic_ns()}"
        unix.bind(name)
        unix.listen()
        outcome = seen(f"connect(socket.AF_INET, ('127.0.0.1', {tcp.getsockname()[1]}))")
        yield Check("no loopback", outcome in ("EPERM", "ENETUNREACH"), str(outcome))
        outcome = seen("connect(socket.AF_INET, ('169.254.169.254', 80))")
        yield Check("no network", outcome in ("EPERM", "ENETUNREACH"), str(outcome))
        outcome = seen(f"connect(socket.AF_UNIX, {name!r})")
        yield Check("no abstract sockets of this machine", outcome == "ECONNREFUSED", str(outcome))


def _files(seen: Any) -> Iterator[Check]:
    with tempfile.NamedTemporaryFile(prefix="reasoner-self-test-") as canary:
        wanted = [
            canary.name,
            str(Path(__file__).resolve()),
            str(Path.home() / ".cache"),
            str(Path.home() / ".netrc"),
            str(Path.cwd() / "pyproject.toml"),
            "/etc/passwd",
            "/dev/shm",
            "/dev/kmsg",
            "/sys",
        ]
        found = seen(f"readable({wanted!r})")
    yield Check("no home, project or host files", found == [], f"seen: {found}" if found else "")
    outcome = [seen(f"write_file({path!r}, 1)") for path in ("/canary", "/usr/canary", "/usr/lib/canary")]
    yield Check(
        "read-only file system", all(o in ("EROFS", "EACCES", "EPERM") for o in outcome), str(outcome)
    )
    outcome = seen("write_file('/tmp/canary', 1)")
    yield Check("a private /tmp that can be written", outcome == "done", str(outcome))
    found = seen("sorted(os.listdir('/proc'))")
    own = isinstance(found, list) and [n for n in found if n.isdigit()] in (["2"], ["1", "2"])
    yield Check("own /proc", own if found else None, str(found)[:60])


def _identity(seen: Any, sandbox: Sandbox) -> Iterator[Check]:
    found = seen("dict(os.environ)")
    names = sorted(found) if isinstance(found, dict) else found
    allowed = {*ENVIRONMENT, "LC_CTYPE"}
    yield Check("clean environment", isinstance(found, dict) and set(found) <= allowed, str(names))
    uid = seen("os.getuid()")
    yield Check("unprivileged user", uid == NOBODY if sandbox.as_root else None, f"uid {uid}")
    status = seen("status()")
    if not isinstance(status, dict):
        yield Check("no capabilities", None, "no /proc")
        return
    zero = all(int(status[name], 16) == 0 for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"))
    yield Check("no capabilities", zero, status["CapBnd"])
    yield Check("no new privileges", status["NoNewPrivs"] == "1")
    yield Check("seccomp filter", status["Seccomp"] == "2" if sandbox.filter else None, sandbox.backend)
    yield Check("no nested namespaces", seen("__import__('ctypes').CDLL(None).unshare(0x10000000)") == -1)


def _resources(seen: Any, sandbox: Sandbox) -> Iterator[Check]:
    limits = sandbox.limits
    count = seen("forks()")
    yield Check("limit of processes", isinstance(count, int) and count < limits.processes, f"{count} forks")
    count = seen("threads()")
    yield Check("limit of threads", isinstance(count, int) and count < limits.processes, f"{count} threads")
    count = seen("open_files()")
    yield Check("limit of open files", isinstance(count, int) and count < limits.files, f"{count} files")
    outcome = seen(f"allocate({limits.memory_mib})")
    yield Check("limit of memory", outcome == "MemoryError", str(outcome))
    outcome = seen(f"write_file('/tmp/canary', {limits.file_mib + 1})")
    yield Check("limit of file size", outcome == "EFBIG", str(outcome))
    count = seen(f"fill_tmp({limits.tmp_mib * 2})")
    yield Check("limit of disk", isinstance(count, int) and count <= limits.tmp_mib, f"{count} MiB")
    yield Check("no core files", seen("core_limit()") == 0)


_DAEMON = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(60)
    os._exit(0)
while True:
    pass
"""


def _killing(sandbox: Sandbox) -> Iterator[Check]:
    limits = replace(sandbox.limits, wall_seconds=0.2)
    with sandbox.start({"mode": "program", "source": _DAEMON}, limits) as child:
        begun = time.monotonic()
        namespace = ProcessNamespace.of(child.pid)
        result: str = Status.TIMEOUT
        try:
            child.receive(begun + limits.wall_seconds)
            result = "answered"
        except Stopped as stopped:
            result = stopped.status
        took = time.monotonic() - begun
    yield Check("killed at the time limit", result == Status.TIMEOUT and took < 3, f"{took:.2f} s")
    if namespace is None:
        yield Check("nothing outlives it", None)
    else:
        with namespace:
            left = namespace.processes()
        yield Check("nothing outlives it", not left, f"{len(left)} processes left")
    early = sandbox.evaluate_program("import os\nos._exit(0)")
    yield Check("an early exit is no answer", early.status is Status.KILLED, early.message)
