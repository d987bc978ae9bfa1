"""Processes that take turns on one machine: each loads once and then does a piece of work for every line of JSON.

`Side` is the parent's end of such a process, `Channel` the child's. What libraries print in a child goes to its log.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

PATIENCE = 20
"""Seconds that a side gets to end."""


class Side:
    """A program in a process of its own. Raises RuntimeError with the process's own word when it fails."""

    def __init__(
        self, name: str, argv: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        """Start `python argv…`; `environment` is added to this process's."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.name, self.log = name, log
        with log.open("w") as out:
            self._process = subprocess.Popen(
                [sys.executable, *argv], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, text=True,
                env={**os.environ, **(environment or {})}, start_new_session=True,
            )  # fmt: skip

    def expect(self, word: str) -> dict[str, Any]:
        """The next answer, which must have `word`."""
        assert self._process.stdout
        answer = json.loads(self._process.stdout.readline() or "{}")
        if word not in answer:
            tail = self.log.read_text(errors="replace")[-1500:]
            raise RuntimeError(f"{self.name}: {answer.get('error', 'the process ended')}\n{tail}")
        return dict(answer)

    def order(self, **row: Any) -> None:
        """Send an order; `expect` waits for what comes of it."""
        assert self._process.stdin
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(row), file=self._process.stdin, flush=True)

    def end(self) -> None:
        """Let it end by itself, or kill it; then whatever it has started and left behind, such as vLLM's core."""
        self.order(do="end")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(PATIENCE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Channel:
    """The child's end: answers go where standard output went, and whatever is printed goes to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def answer(self, **row: Any) -> None:
        """A line to the parent."""
        print(json.dumps(row), file=self._out, flush=True)

    def orders(self) -> Iterator[dict[str, Any]]:
        """Orders until `end` or the parent's death."""
        for line in sys.stdin:
            order: dict[str, Any] = json.loads(line)
            if order["do"] == "end":
                return
            yield order


def serve(work: Callable[[Channel], None]) -> NoReturn:
    """Run a child's `work` and end the process: at once, for vLLM leaves threads that would hold its exit up.

    An exception is told to the parent, in a line, and to the log.
    """
    channel, code = Channel(), 0
    try:
        work(channel)
    except BaseException as error:
        traceback.print_exc()
        said = (str(error).splitlines() or [""])[0]
        channel.answer(error=f"{type(error).__name__}: {said}")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def in_turns(names: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """(round, name) in the order A B, B A, A B, …; round 0 is the warm-up, `rounds` more are counted."""
    for number in range(rounds + 1):
        for name in names if number % 2 else reversed(names):
            yield number, name
