"""Verdicts on a file of rows: JSON Lines in, JSON Lines out, in order, while both are being read and judged.

Math rows hold `gold` and `prediction`, code rows `program` and `tests` (optional: `setup` or
`test_setup_code`, `imports` or `test_imports`). An output row is the input row plus `outcome`, `reason`,
`extracted` and `seconds`. A row that can't be understood ends the stream with a DataError that names file and
line, after the verdicts of all rows before it. Memory does not grow with the file.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar

from reasoner.errors import DataError
from reasoner.records import Outcome, Verdict
from reasoner.verifiers.math import MathItem
from reasoner.verifiers.policy import MathPolicy

Kind = Literal["math", "code"]
Row = dict[str, Any]
Item = TypeVar("Item")

_NEEDED = {"math": "gold and prediction", "code": "program and tests"}


def verify_file(
    kind: Kind,
    path: Path,
    *,
    workers: int | None = None,
    timeout: float | None = None,
    policy: MathPolicy | None = None,
) -> Iterator[Row]:
    """The rows of `path` with their verdicts. Raises DataError for a missing file or a bad row."""
    if not path.is_file():
        raise DataError(f"{path}: no such file; give a file of JSON Lines with {_NEEDED[kind]}")
    with path.open("rb") as lines:
        yield from verify_lines(
            kind, lines, source=str(path), workers=workers, timeout=timeout, policy=policy
        )


def verify_lines(
    kind: Kind,
    lines: Iterable[str | bytes],
    *,
    source: str = "standard input",
    workers: int | None = None,
    timeout: float | None = None,
    policy: MathPolicy | None = None,
) -> Iterator[Row]:
    """The rows of `lines` with their verdicts. `timeout` is seconds a row: unset means 5 for math, 10 for
    code.

    Raises DataError for a bad row, InfrastructureError where no worker starts, and SandboxUnavailableError
    where code can't be isolated.
    """
    if kind == "math":
        rows = _Reader(lines, source, _math_item)
        found = _math_verdicts(rows, workers, timeout or 5.0, policy)
    else:
        rows = _Reader(lines, source, _code_item)
        found = _code_verdicts(rows, workers, timeout or 10.0)
    for verdict in found:
        yield rows.next_row() | verdict.to_row()
    rows.raise_error()


def write_verdicts(rows: Iterable[Row], out: TextIO) -> Counter[Outcome]:
    """Write rows as JSON Lines, one at a time, and count their outcomes."""
    counts: Counter[Outcome] = Counter()
    for row in rows:
        counts[Outcome(row["outcome"])] += 1
        out.write(json.dumps(row, ensure_ascii=False) + "\n")
        out.flush()
    return counts


class _Reader(Iterator[Any]):
    """Turns lines into items one at a time; keeps the rows that are not answered yet and the first error."""

    def __init__(self, lines: Iterable[str | bytes], source: str, make: Callable[[Row], Any]) -> None:
        self._lines, self._source, self._make = enumerate(lines, 1), source, make
        self._waiting: list[Row] = []
        self._taken = 0
        self._error: DataError | None = None

    def __next__(self) -> Any:
        if self._error is not None:
            raise StopIteration
        for number, line in self._lines:
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode() if isinstance(line, bytes) else line)
                if not isinstance(row, dict):
                    raise ValueError(f"the line holds a {type(row).__name__}, not an object")
                item = self._make(row)
            except (ValueError, RecursionError) as error:
                what = "not UTF-8 text" if isinstance(error, UnicodeDecodeError) else str(error)[:200]
                self._error = DataError(f"{self._source}:{number}: {what}")
                raise StopIteration from error
            self._waiting.append(row)
            return item
        raise StopIteration

    def next_row(self) -> Row:
        """The first row that was not answered yet."""
        row = self._waiting[self._taken]
        self._taken += 1
        if self._taken >= 1024:
            del self._waiting[: self._taken]
            self._taken = 0
        return row

    def raise_error(self) -> None:
        if self._error is not None:
            raise self._error


def _math_verdicts(
    items: Iterator[MathItem], workers: int | None, timeout: float, policy: MathPolicy | None
) -> Iterator[Verdict]:
    from reasoner.verifiers.pool import verify_math

    yield from verify_math(items, workers=workers, timeout=timeout, policy=policy)


def _code_verdicts(items: Iterator[Any], workers: int | None, timeout: float) -> Iterator[Verdict]:
    from reasoner.verifiers.code import stream_verdicts

    early: dict[int, Verdict] = {}
    due = 0
    for index, found in stream_verdicts(items, workers=workers, timeout=timeout):
        early[index] = found.verdict
        while due in early:
            yield early.pop(due)
            due += 1


def _math_item(row: Row) -> MathItem:
    return MathItem(_text(row, "gold"), _text(row, "prediction"))


def _code_item(row: Row) -> Any:
    from reasoner.verifiers.code import CodeItem

    tests = row.get("tests")
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests) or not tests:
        raise ValueError("`tests` must be a list of Python statements with at least one in it")
    setup = row.get("setup", row.get("test_setup_code", ""))
    imports = row.get("imports", row.get("test_imports", []))
    if not isinstance(setup, str):
        raise ValueError("`setup` must be text")
    if not isinstance(imports, list) or not all(isinstance(line, str) for line in imports):
        raise ValueError("`imports` must be a list of import statements")
    return CodeItem(_text(row, "program"), tuple(tests), setup, tuple(imports))


def _text(row: Row, key: str) -> str:
    """A text column; a number is its text and null is an empty answer."""
    if key not in row:
        raise ValueError(f"the row has no `{key}` (it has: {', '.join(sorted(row)) or 'nothing'})")
    value = row[key]
    if isinstance(value, bool) or not isinstance(value, str | int | float | None):
        raise ValueError(f"`{key}` must be text, not {type(value).__name__}")
    return "" if value is None else str(value)
