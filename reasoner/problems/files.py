"""Data sets in local files: JSON Lines, JSON (a list of objects), CSV with a header, Parquet.

JSON is read with the standard library and not with `datasets`, which gives every column one type and so
refuses files whose golds are now a number and now a text.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from reasoner.config.data import FILE_SUFFIXES
from reasoner.errors import DataError
from reasoner.ids import file_hash
from reasoner.problems.table import Row, Table


def read_file(path: Path) -> Table:
    """The rows of a data file; raises DataError where it is missing, of an unknown kind, or malformed."""
    path = path.expanduser()
    if not path.is_file():
        what = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise DataError(f"{path}: {what}. Give the path of a {', '.join(FILE_SUFFIXES)} file")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise DataError(f"{path}: cannot tell the format; the name must end in {', '.join(FILE_SUFFIXES)}")
    try:
        return Table.of(reader(path), {"kind": "file", "file": path.name, "sha256": file_hash(path)})
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


def _json_lines(path: Path) -> Iterator[tuple[int, Row]]:
    # Lines end at \n only: str.splitlines would also cut at U+2028, which JSON allows inside a string.
    with path.open(encoding="utf-8-sig", newline="\n") as handle:
        for number, line in enumerate(handle, 1):
            if line.strip():
                yield number, _object(line, f"{path}, line {number}")


def _object(text: str, where: str) -> Row:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON ({error.msg} at column {error.colno})") from None
    return _checked(row, where)


def _checked(row: object, where: str) -> Row:
    if not isinstance(row, dict):
        raise DataError(f"{where}: a row must be a JSON object, this is a {type(row).__name__}")
    return row


def _json(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except json.JSONDecodeError as error:
        raise DataError(f"{path}, line {error.lineno}: not JSON ({error.msg})") from None
    if not isinstance(rows, list):
        raise DataError(f"{path}: must hold a list of objects; a file with one object a line ends in .jsonl")
    for number, row in enumerate(rows, 1):
        yield number, _checked(row, f"{path}, row {number}")


def _csv(path: Path) -> Iterator[tuple[int, Row]]:
    with path.open(encoding="utf-8-sig", newline="") as handle:
        reader = csv.DictReader(handle, strict=True)
        try:
            for row in reader:
                if None in row:
                    raise DataError(f"{path}, line {reader.line_num}: more cells than the header has columns")
                yield reader.line_num, {name: cell for name, cell in row.items() if cell is not None}
        except csv.Error as error:
            raise DataError(f"{path}, line {reader.line_num}: not CSV ({error})") from None


def _parquet(path: Path) -> Iterator[tuple[int, Row]]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise DataError(f"{path}: not a Parquet file ({str(error).splitlines()[0]})") from None
    yield from enumerate(rows, 1)


READERS = {".jsonl": _json_lines, ".json": _json, ".csv": _csv, ".parquet": _parquet}
