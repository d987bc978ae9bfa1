"""`runs/NAME/stages.jsonl`: every stage that a run called, with its inputs, as it happens.

A row is appended when a stage begins to be computed (`started`) and when it is there (`made` or `cached`). The file is
a record and no cache: a line that a crash cut off is skipped.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reasoner.lineage.calls import Call
from reasoner.records import ArtifactRef

FILE, FINISHED = "stages.jsonl", "finished"
STARTED, MADE, CACHED = "started", "made", "cached"


@dataclass(frozen=True)
class Row:
    """A call and how far it has come."""

    state: str
    call: Call
    at: str
    """UTC, ISO 8601."""


def append(folder: Path, state: str, call: Call) -> None:
    """Add one row. One write of one line: rows of a run's two processes do not mix."""
    row = {
        "state": state,
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "stage": call.stage,
        "label": call.label,
        "version": call.version,
        "key": call.key,
        "arguments": call.arguments,
        "external": call.external,
        "ref": call.ref.to_row() if call.ref else None,
    }
    line = json.dumps(row, sort_keys=True, ensure_ascii=False) + "\n"
    fd = os.open(folder / FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    try:
        os.write(fd, line.encode())
    finally:
        os.close(fd)


def finish(folder: Path) -> None:
    """Note that the run came to its end: what it made stays as long as its folder does."""
    (folder / FINISHED).touch()


def read(folder: Path) -> list[Row]:
    """The last row of each key, in the order in which the keys first came; empty where there is no journal."""
    rows: dict[str, Row] = {}
    for row in every_row(folder):
        rows[row.call.key] = row
    return list(rows.values())


def every_row(folder: Path) -> Iterator[Row]:
    """All rows as they were written: a stage that is called twice has rows of both calls."""
    try:
        data = (folder / FILE).read_bytes()
    except OSError:
        return
    for line in data.splitlines():
        try:
            yield _row(json.loads(line))
        except (ValueError, KeyError, TypeError):
            continue


def _row(row: dict[str, Any]) -> Row:
    ref = ArtifactRef.from_row(row["ref"]) if row["ref"] else None
    call = Call(
        row["stage"], row["label"], row["version"], row["key"], row["arguments"], row["external"], ref,
        created=row["at"],
    )  # fmt: skip
    return Row(row["state"], call, row["at"])
