"""Reads what W&B wrote offline: the summaries and histories in a folder's .wandb files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

BLOCK, HEADER, FIRST = 32768, 7, 7
"""A .wandb file: 7 bytes of its own, then blocks of pieces, each with checksum (4), length (2) and kind (1)."""
WHOLE, BEGIN, MIDDLE, END = 1, 2, 3, 4


def records(folder: Path) -> list[Any]:
    """Every record of every run under `folder`, as W&B's protocol buffers."""
    from wandb.proto import wandb_internal_pb2 as buffers

    found = []
    for path in sorted(folder.rglob("run-*.wandb")):
        for data in _messages(path.read_bytes()):
            record: Any = getattr(buffers, "Record")()  # noqa: B009 (made at import, unknown to type checkers)
            record.ParseFromString(data)
            found.append(record)
    return found


def _messages(content: bytes) -> Iterator[bytes]:
    assert content[:4] == b":W&B", "another file format"
    at, parts = FIRST, b""
    while at + HEADER <= len(content):
        left = BLOCK - at % BLOCK
        if left < HEADER:  # the rest of a block that is too short for a piece is filled with zeros
            at += left
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        piece, at = content[at + HEADER : at + HEADER + length], at + HEADER + length
        parts = piece if kind in (WHOLE, BEGIN) else parts + piece
        if kind in (WHOLE, END):
            yield parts


def _items(update: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in update}


def summary(folder: Path) -> dict[str, Any]:
    """The last value of every summary key."""
    found: dict[str, Any] = {}
    for record in records(folder):
        if record.WhichOneof("record_type") == "summary":
            found |= _items(record.summary.update)
    return found


def history(folder: Path) -> list[dict[str, Any]]:
    """Each logged step."""
    return [_items(r.history.item) for r in records(folder) if r.WhichOneof("record_type") == "history"]


def runs(folder: Path) -> list[Any]:
    """The runs that were begun."""
    return [r.run for r in records(folder) if r.WhichOneof("record_type") == "run"]


def exit_codes(folder: Path) -> list[int]:
    """With what status each run ended."""
    return [r.exit.exit_code for r in records(folder) if r.WhichOneof("record_type") == "exit"]
