"""A data set as rows: what every kind of source is read into before its columns are mapped."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows with their numbers in the source, from 1 as an editor counts lines (a header is line 1)."""

    rows: tuple[tuple[int, Row], ...]
    columns: tuple[str, ...]
    """Every column that any row has, in the order of appearance."""
    fingerprint: dict[str, Any]
    """What identifies the content: a file's sha256, a Hub commit, a generator's version."""

    @classmethod
    def of(cls, rows: Iterable[tuple[int, Row]], fingerprint: dict[str, Any]) -> "Table":
        kept = tuple(rows)
        return cls(kept, tuple(dict.fromkeys(name for _, row in kept for name in row)), fingerprint)
