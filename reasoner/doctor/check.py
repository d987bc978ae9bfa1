"""One thing that was looked at."""

from dataclasses import dataclass
from enum import StrEnum

from reasoner.records import Record


class State(StrEnum):
    """How it is."""

    OK = "ok"
    NOTE = "note"
    """A run works without it, or works otherwise than somebody may expect."""
    MISSING = "missing"
    """A run needs it."""


@dataclass(frozen=True, slots=True)
class Check(Record):
    """What was looked at, how it is, and what to do where it is not as it should be."""

    group: str
    name: str
    state: State
    detail: str = ""
    advice: str = ""
