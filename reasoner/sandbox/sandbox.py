"""`Sandbox`: runs untrusted Python in namespaces of its own and returns plain values, or refuses.

    sandbox = Sandbox.detect()
    sandbox.evaluate_program("answer = 6 * 7").value             # '42.0'
    sandbox.evaluate_calls("def f(x): return x + 1", ["f(1)"]).calls[0].value        # 2

Covered: see `inside/jail.py` (isolation), `process.py` (time, bytes, killing), `selftest.py` (what was tried
on this machine). Not covered: judging. Expected values never enter a sandbox; they are compared outside.
"""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from threading import Event
from typing import Any

from reasoner.errors import SandboxUnavailableError
from reasoner.sandbox.answers import program_result
from reasoner.sandbox.jobs import Calls, CallsResult, Limits, Program, Result
from reasoner.sandbox.process import Child, Stopped
from reasoner.sandbox.seccomp import build_filter
from reasoner.sandbox.session import Session

VERSION = "1"
"""Goes into manifests with the backend's name: raise it when a verdict could change."""
_ADVICE = (
    "allow user namespaces to this user (sysctl kernel.apparmor_restrict_unprivileged_userns=0, "
    "user.max_user_namespaces>0; in Docker --security-opt seccomp=unconfined, apparmor=unconfined), "
    "or run as root; untrusted code is never run without isolation"
)


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A way to isolate programs that was tried on this machine. Threads may share it."""

    as_root: bool
    filter: bytes | None = field(repr=False)
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def detect(cls, limits: Limits | None = None) -> "Sandbox":
        """The sandbox of this machine, after one program has really run in it.

        Raises SandboxUnavailableError, saying which step the kernel refused and what to allow.
        """
        if sys.platform != "linux":
            raise SandboxUnavailableError(
                "no sandbox: it needs Linux namespaces; run this in a Linux container"
            )
        sandbox = _probe()
        return cls(sandbox.as_root, sandbox.filter, limits or sandbox.limits)

    @property
    def backend(self) -> str:
        """Name and version for manifests, such as `namespaces+seccomp/1`."""
        return f"namespaces{'+seccomp' if self.filter else ''}/{VERSION}"

    def evaluate_program(
        self, source: str, limits: Limits | None = None, *, cancel: Event | None = None
    ) -> Result:
        """Run a program of thought; an ok result holds `repr(float(answer))`."""
        limits = limits or self.limits
        started = time.monotonic()
        try:
            with self.start({"mode": "program", "source": source}, limits, cancel=cancel) as child:
                started = time.monotonic()
                line = child.receive(started + limits.wall_seconds)
        except Stopped as stopped:
            return Result(stopped.status, message=stopped.message, seconds=time.monotonic() - started)
        return program_result(line, time.monotonic() - started)

    def evaluate_calls(
        self,
        source: str,
        expressions: Sequence[str],
        *,
        setup: str = "",
        limits: Limits | None = None,
        cancel: Event | None = None,
    ) -> CallsResult:
        """Evaluate expressions on a candidate, in order, in one namespace; `setup` runs after it."""
        started = time.monotonic()
        with Session(self, source, setup=setup, limits=limits, cancel=cancel) as session:
            calls = tuple(session.evaluate(expression) for expression in expressions)
            return CallsResult(session.load, calls, time.monotonic() - started)

    def evaluate(
        self, job: "str | Program | Calls", *, cancel: Event | None = None
    ) -> "Result | CallsResult":
        """Run one job of either kind; a bare string is a `Program`."""
        if isinstance(job, Calls):
            return self.evaluate_calls(
                job.source, job.expressions, setup=job.setup, limits=job.limits, cancel=cancel
            )
        if isinstance(job, str):
            job = Program(job)
        return self.evaluate_program(job.source, job.limits, cancel=cancel)

    def start(
        self,
        job: dict[str, Any],
        limits: Limits,
        *,
        programs: tuple[str, ...] = ("harness.py",),
        cancel: Event | None = None,
    ) -> Child:
        """A child that is about to run `job`. Raises `Stopped` (harness_error) where the set-up failed."""
        settings = {"as_root": self.as_root, "filter": self.filter, "hide": _hidden_folders()}
        child = Child(job, settings, limits, programs, cancel)
        try:
            child.wait_ready()
        except BaseException:
            child.kill()
            raise
        return child


@cache
def _hidden_folders() -> list[str]:
    """Folders of people, project and data: masked where they lie inside a folder that the sandbox shows."""
    names = [Path.cwd(), Path.home(), Path(__file__).parents[2], Path(sys.prefix)]
    names += [
        Path(os.environ[key]) for key in ("REASONER_HOME", "HF_HOME", "VIRTUAL_ENV") if os.environ.get(key)
    ]
    found = {str(path.resolve()) for path in names}
    return sorted(found - {sys.base_prefix, sys.base_exec_prefix, "/usr", "/"})


@cache
def _probe() -> Sandbox:
    """Try one program, as root with a user of its own where this is root."""
    as_root = hasattr(os, "geteuid") and os.geteuid() == 0
    sandbox = Sandbox(as_root, build_filter())
    result = sandbox.evaluate_program("answer = 6 * 7", Limits(wall_seconds=30))
    if result.value != "42.0":
        raise SandboxUnavailableError(f"no sandbox: {result.message or result.status}; {_ADVICE}")
    return sandbox
