"""The planner's output: one JSON object, read strictly (METHODS 4.2).

    {"should_decompose": true, "subproblems": ["…", "…"], "plan": "…"}

Exactly these keys, of exactly these types. Text around the object is tolerated and reported. Departs from the
original on purpose: its brace counter ignored strings, took any dictionary for an atomic plan, the string
"false" for true, and a string of sub-problems for a list of letters.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from reasoner.records import Record

KEYS = frozenset(("should_decompose", "subproblems", "plan"))
MIN_SUBPROBLEMS = 2
MAX_SUBPROBLEMS = 4
MAX_CHARACTERS = 300
"""Longest sub-problem."""

_FENCE = re.compile(r"\A\s*```[A-Za-z]*[ \t]*\n(.*?)\n?[ \t]*```\s*\Z", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Plan(Record):
    """A valid plan. `subproblems` is empty exactly where the problem is not decomposed."""

    should_decompose: bool
    subproblems: tuple[str, ...]
    plan: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "subproblems", tuple(self.subproblems))

    def to_json(self) -> str:
        """The plan as the planner should write it."""
        value = {
            "should_decompose": self.should_decompose,
            "subproblems": list(self.subproblems),
            "plan": self.plan,
        }
        return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ParsedPlan:
    """What was read: a plan, or none and the reason; `extra_text` tells of text outside the object."""

    plan: Plan | None
    reason: str
    """`ok`, `no_object` or what is wrong with the first object: `keys`, `should_decompose`, `subproblems`, `plan`,
    `count`, `empty`, `long`, `duplicate`, `not_empty` (sub-problems beside `false`)."""
    extra_text: bool = False


def parse_plan(text: str) -> ParsedPlan:
    """The first object of `text` that satisfies the schema; without one, what is wrong with the first object."""
    fence = _FENCE.match(text)
    body = fence[1] if fence else text
    first = ""
    for value, start, end in _objects(body):
        plan, reason = check_plan(value)
        if plan is not None:
            return ParsedPlan(plan, "ok", bool(body[:start].strip() or body[end:].strip()))
        first = first or reason
    return ParsedPlan(None, first or "no_object", bool(body.strip()))


def check_plan(value: Any) -> tuple[Plan | None, str]:
    """A decoded object as a plan, or None and what is wrong with it."""
    if not isinstance(value, dict) or value.keys() != KEYS:
        return None, "keys"
    decompose, subproblems, plan = value["should_decompose"], value["subproblems"], value["plan"]
    if not isinstance(decompose, bool):
        return None, "should_decompose"
    if not isinstance(subproblems, list) or not all(isinstance(part, str) for part in subproblems):
        return None, "subproblems"
    if not isinstance(plan, str):
        return None, "plan"
    parts = tuple(part.strip() for part in subproblems)
    if not decompose:
        return (Plan(False, (), plan), "ok") if not parts else (None, "not_empty")
    if not MIN_SUBPROBLEMS <= len(parts) <= MAX_SUBPROBLEMS:
        return None, "count"
    if not all(parts):
        return None, "empty"
    if any(len(part) > MAX_CHARACTERS for part in parts):
        return None, "long"
    if len({" ".join(part.casefold().split()) for part in parts}) < len(parts):
        return None, "duplicate"
    return Plan(True, parts, plan), "ok"


def _objects(text: str) -> Iterator[tuple[Any, int, int]]:
    """Every decodable JSON object of `text` with its place; an object inside a decoded one is not looked at."""
    decoder = json.JSONDecoder(object_pairs_hook=_unique)
    start = text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        yield value, start, end
        start = text.find("{", end)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A key that stands twice says two things; such an object has no valid keys."""
    names = [name for name, _ in pairs]
    return dict(pairs) if len(set(names)) == len(names) else {}
