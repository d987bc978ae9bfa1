"""What is written down of every step: `metrics.jsonl` and `examples.jsonl` in the work folder, and W&B where
it is on.

A resumed run drops the rows of steps that it will make again. Seconds are kept apart when the files are
published, since an adapter's digest must not depend on them.
"""

import json
import math
from pathlib import Path
from typing import Any

from reasoner.onpolicy.parts import Parts
from reasoner.store.rows import dump_row
from reasoner.tracking import Histogram, Run, Table

METRICS, EXAMPLES = "metrics.jsonl", "examples.jsonl"
TIMES = ("time", "runtime", "per_second", "profiling/", "seconds", "epoch")
"""A metric with one of these words in its name is of the machine, not of the training."""


class Journal:
    """Rows of steps. `run` shows them in W&B, too, under `name`. Only the process that `writes` has files."""

    def __init__(self, work: Path, examples: int, run: Run, name: str, writes: bool = True) -> None:
        self._writes = writes
        self._metrics, self._examples = work / METRICS, work / EXAMPLES
        self._kept, self._run, self._name = examples, run, name
        self._pending: dict[str, Any] = {}

    def rewind(self, step: int) -> None:
        """Forget what later steps than `step` left."""
        if not self._writes:
            return
        for path in (self._metrics, self._examples):
            rows = [row for row in read_rows(path) if row["step"] <= step]
            path.write_text("".join(_line(row) for row in rows), encoding="utf-8")

    def rollout(self, found: dict[str, Any]) -> None:
        """Keep the first completions of a step, of as many problems as there are; called before the step's update."""
        step, rows = found["step"], found["rows"]
        chosen = _spread(rows, self._kept)
        with self._examples.open("a", encoding="utf-8") as out:
            out.writelines(_line({"step": step, **row}) for row in chosen)
        self._pending = {"rows": chosen, "rewards": [r["reward"] for r in rows if r["reward"] is not None]}

    def step(self, step: int, logs: dict[str, Any]) -> None:
        """Write the numbers of a finished step."""
        numbers = {k: v for k, v in logs.items() if isinstance(v, int | float) and math.isfinite(v)}
        with self._metrics.open("a", encoding="utf-8") as out:
            out.write(_line({"step": step, **numbers}))
        self._show(step, numbers)

    def publish(self, output: Path) -> list[dict[str, Any]]:
        """Copy both files to `output`, without times; returns the rows of the metrics."""
        rows = [
            {k: v for k, v in row.items() if not any(word in k for word in TIMES)}
            for row in read_rows(self._metrics)
        ]
        (output / METRICS).write_text("".join(map(_line, rows)), encoding="utf-8")
        (output / EXAMPLES).write_text("".join(map(_line, read_rows(self._examples))), encoding="utf-8")
        return rows

    def _show(self, step: int, numbers: dict[str, Any]) -> None:
        found: dict[str, Any] = dict(numbers)
        if self._pending.get("rewards"):
            found[f"{self._name}/reward_distribution"] = Histogram(self._pending["rewards"])
        if rows := self._pending.get("rows"):
            columns = list(rows[0])
            found[f"{self._name}/examples"] = Table(columns, [[row[c] for c in columns] for row in rows])
        self._pending = {}
        self._run.log(found, step)


def journal_callback(journal: Journal, parts: Parts) -> Any:
    """A Trainer callback that passes every step's log on, with the step's seconds by part."""
    from transformers import TrainerCallback

    class Journaling(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            parts.take()  # what came before is no step's time

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
            if logs and "loss" in logs:
                seconds = {name: round(value, 4) for name, value in parts.take_step().metrics().items()}
                if state.is_world_process_zero:
                    journal.step(state.global_step, {**logs, **seconds})

    return Journaling()


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a journal; a line that a killed process left half written is dropped."""
    rows = []
    # Not splitlines: other line separators than the line feed may stand inside a text.
    for line in path.read_text(encoding="utf-8").split("\n") if path.is_file() else []:
        if not line:
            continue
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _spread(rows: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """`count` rows, of different problems first."""
    seen: dict[str, int] = {}
    ranked = []
    for i, row in enumerate(rows):
        nth = seen[row["problem_id"]] = seen.get(row["problem_id"], -1) + 1
        ranked.append((nth, i, row))
    return [row for _, _, row in sorted(ranked, key=lambda r: r[:2])[:count]]


def _line(row: dict[str, Any]) -> str:
    return dump_row(row).decode() + "\n"
