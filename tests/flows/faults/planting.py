"""Plants one fault in the process of a command: at a moment of one stage, what a machine or a person may do to it.

Everything is real: signals, `chmod`, a file that fills the disk, limits of the kernel, bytes that are changed. Only the
moment is arranged, by wrapping the stage's function and its progress reports. Nothing of the project's own code is
replaced; where memory is to run out, a child does not keep what it frees.
"""

import contextlib
import os
import resource
import signal
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import psutil

from reasoner.hardware import KEPT_MEMORY

MOMENTS = ("start", "progress", "written")
"""When the stage begins; at a report of its progress; when its files are written and not yet published."""
BALLAST = "ballast"
LATER_SECONDS = 300


def plant(
    computed: str, stage: str = "", moment: str = "", action: str = "nothing", at: int = 1, **details: Any
) -> None:
    """Note every stage that is computed in `computed`, and do `action` once: at the `at`-th `moment` of `stage`.

    To be called when Prefect may be imported, which `flows.commands.run` settles.
    """
    import flows.multiturn
    import flows.planner
    import flows.smart  # noqa: F401
    from reasoner import workbench
    from tasks.stage import STAGES, Stage

    if action == "memory":
        _give_memory_back()
    home = Path(os.environ["REASONER_HOME"])
    seen = dict.fromkeys(MOMENTS, 0)
    working: dict[str, Any] = {}
    computing = ContextVar("computing", default=False)

    def reached(name: str) -> None:
        seen[name] += 1
        if name == moment and seen[name] == at:
            ACTIONS[action](home=home, arguments=working, **details)

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def function(out: Any, **arguments: Any) -> Any:
            if not computing.get():  # the plan made before the run asks some stages, too
                return real(out, **arguments)
            with open(computed, "a") as log:
                log.write(f"{name}\n")
            if name != stage:
                return real(out, **arguments)
            working.update(arguments)
            reached("start")
            found = real(out, **arguments)
            reached("written")
            working.clear()
            return found

        return function

    def running(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(self: Stage, arguments: dict[str, Any]) -> Any:
            token = computing.set(True)
            try:
                return method(self, arguments)
            finally:
                computing.reset(token)

        return run

    def reporting(method: Callable[..., None]) -> Callable[..., None]:
        def report(self: Any, *args: Any, **facts: Any) -> None:
            method(self, *args, **facts)
            if working:
                reached("progress")

        return report

    for name, found in STAGES.items():
        found.function = noting(name, found.function)
    Stage.run = running(Stage.run)  # type: ignore[method-assign]
    for name in ("progress", "child_progress"):
        setattr(workbench.Workbench, name, reporting(getattr(workbench.Workbench, name)))


def _signal_flow(number: str, **_: Any) -> None:
    os.kill(os.getpid(), getattr(signal, number))


def _children(program: str) -> list[psutil.Process]:
    """Descendants whose command line names `program`, without the guards that stand before them."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            line = " ".join(child.cmdline())
            if program in line and "guard.py" not in line:
                found.append(child)
    return found


def _kill_child(program: str, **_: Any) -> None:
    found = _children(program)
    assert found, f"no child runs {program}"
    found[-1].kill()


def _kill_child_later(program: str, **_: Any) -> None:
    """As soon as it is there: for what says nothing while it works."""

    def wait_and_kill() -> None:
        deadline = time.monotonic() + LATER_SECONDS
        while time.monotonic() < deadline:
            for child in _children(program):
                child.kill()
                return
            time.sleep(0.02)

    threading.Thread(target=wait_and_kill, daemon=True).start()


def _give_memory_back() -> None:
    """A child that computes returns what it frees, as beside an accelerator: every larger tensor asks for more.

    With what it keeps otherwise, a tiny model is trained to the end without another page.
    """
    KEPT_MEMORY.clear()
    KEPT_MEMORY["MALLOC_MMAP_THRESHOLD_"] = str(64 << 10)


def _limit_memory(program: str, **_: Any) -> None:
    """The child gets not one page more, as on a machine that has none left."""
    found = _children(program)
    assert found, f"no child runs {program}"
    for child in found:
        half = child.memory_info().vms // 2  # what it has stays; what it frees and maps again is refused, too
        resource.prlimit(child.pid, resource.RLIMIT_AS, (half, half))


def _fill_disk(home: Path, left: int = 0, **_: Any) -> None:
    """Write a file until the disk is full, then leave `left` bytes."""
    with contextlib.suppress(OSError), (home / BALLAST).open("wb", buffering=0) as file:
        while True:
            file.write(b"\0" * 4096)
    size = (home / BALLAST).stat().st_size
    os.truncate(home / BALLAST, max(0, size - left))


def _forbid(home: Path, folders: list[str], **_: Any) -> None:
    for name in folders:
        folder = home / name
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o555)


def _alter(arguments: dict[str, Any], argument: str, file: str, **_: Any) -> None:
    """Change the first byte of a file of an input artifact."""
    from reasoner.records import ArtifactRef
    from reasoner.store import open_ref

    value = arguments[argument]
    ref = value[0] if isinstance(value, tuple) else value
    assert isinstance(ref, ArtifactRef)
    path = open_ref(ref) / file
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def _turn_clock_back(home: Path, **_: Any) -> None:
    """From now on the shim that the process was started with says a day less."""
    Path(os.environ["REASONER_TEST_CLOCK"]).touch()


ACTIONS: dict[str, Callable[..., None]] = {
    "signal": _signal_flow,
    "kill": _kill_child,
    "kill-later": _kill_child_later,
    "memory": _limit_memory,
    "fill": _fill_disk,
    "forbid": _forbid,
    "alter": _alter,
    "clock": _turn_clock_back,
    "nothing": lambda **_: None,
}
