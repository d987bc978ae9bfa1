"""Measurements made of other measurements: rows with nested records, read back whole."""

from typing import Any, Self

from pydantic import TypeAdapter

from reasoner.records import Record


class Measured(Record):
    """A record whose fields may be records; `from_row` rebuilds them, also from JSON (string keys)."""

    __slots__ = ()

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Self:
        return TypeAdapter(cls).validate_python(row)
