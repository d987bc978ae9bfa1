"""Shows how far a stage is: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from dataclasses import dataclass, field
from typing import Any, TextIO

from reasoner.redaction import redact

PLAIN_SECONDS = 10.0
"""Plain lines come at most this often, so that a log stays readable."""


@dataclass
class Progress:
    """`update` may be called for every completion; it draws at most four times a second on a terminal."""

    out: TextIO = field(default_factory=lambda: sys.stderr)
    _label: str = ""
    _bar: Any = None
    _task: Any = None
    _last: float = 0.0

    def update(self, label: str, done: int, total: int, **facts: Any) -> None:
        """Stage `label` has done `done` of `total`; `facts` such as a loss are shown behind."""
        if label != self._label:
            self.close()
            self._label, self._last = label, 0.0
        note = " ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                        for name, value in facts.items())  # fmt: skip
        if self.out.isatty():
            self._draw(label, done, total, note)
        elif time.monotonic() - self._last >= PLAIN_SECONDS or done >= total:
            self._last = time.monotonic()
            print(redact(f"{label}: {done}/{total} {note}".rstrip()), file=self.out, flush=True)

    def say(self, line: str) -> None:
        """One line of its own, above the bar."""
        line = redact(line)
        if self._bar is not None:
            self._bar.console.print(line, highlight=False, markup=False)
        else:
            print(line, file=self.out, flush=True)

    def close(self) -> None:
        """Take the bar away; the next `update` starts another."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = self._task = None
        self._label = ""

    def _draw(self, label: str, done: int, total: int, note: str) -> None:
        if self._bar is None:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
                TextColumn("{task.fields[note]}"), console=Console(file=self.out), refresh_per_second=4,
                transient=True,
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task(label, total=total, note=note)
        self._bar.update(self._task, completed=done, total=total, note=note)
