"""Rows on disk: JSON Lines, one object a line, sorted keys, UTF-8, no NaN.

Equal rows are equal bytes, so that equal content has an equal digest. Lines end with a line feed only: other
Unicode line separators may stand inside a text.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

from reasoner.errors import DataError
from reasoner.records import Record
from reasoner.store.durable import replace_file


def dump_row(row: Mapping[str, Any] | Record) -> bytes:
    """One row as bytes, without the line feed. ValueError or TypeError if it is not plain JSON data."""
    if isinstance(row, Record):
        row = row.to_row()
    if not isinstance(row, Mapping):
        raise TypeError(f"a row is a mapping, not {type(row).__name__}")
    text = json.dumps(dict(row), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # A lone surrogate (a half of a character from a model's text) exists in JSON only as an escape.
        return json.dumps(dict(row), sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def write_rows(path: str | Path, rows: Iterable[Mapping[str, Any] | Record]) -> int:
    """Write rows (mappings or records) to `path` atomically; returns how many. DataError for a bad row."""
    path = Path(path)
    count = 0

    def lines() -> Iterator[bytes]:
        nonlocal count
        for row in rows:
            count += 1
            try:
                yield dump_row(row) + b"\n"
            except (TypeError, ValueError) as error:
                raise DataError(f"{path}: row {count} cannot be written as JSON: {error}") from None

    replace_file(path, lines())
    return count


def iter_rows(path: str | Path) -> Iterator[dict[str, Any]]:
    """Read rows one by one; empty lines are skipped. Raises DataError with file and line."""
    path = Path(path)
    try:
        handle = path.open("rb")
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a file of JSON Lines") from None
    with handle:
        for number, line in enumerate(handle, 1):
            if line.isspace():
                continue
            try:
                row = json.loads(line.decode(), parse_constant=_refuse)
            except ValueError as error:
                reason = getattr(error, "msg", None) or str(error)
                raise DataError(f"{path}:{number}: not valid JSON: {reason}") from None
            if not isinstance(row, dict):
                raise DataError(f"{path}:{number}: a row is a JSON object, not {type(row).__name__}")
            yield row


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """All rows of a file. Raises DataError with file and line."""
    return list(iter_rows(path))


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")
