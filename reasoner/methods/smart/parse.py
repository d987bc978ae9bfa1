"""Reads a policy's response: `<Strategy name>: <solution>` (METHODS 2.2).

The name is the text before the first colon. It must be one of the three titles in full; letter case and the
amount of white space do not matter ("chain of  thought :" is Chain of Thought). Nothing else is forgiven: no
abbreviation, markdown or leading words, so that a policy that drifts from the format is seen in the
invalid-prefix rate and not mended here.
"""

from dataclasses import dataclass

from reasoner.records import Record, Strategy


@dataclass(frozen=True, slots=True)
class Parsed(Record):
    """A response taken apart. Without a valid name `strategy` is None and `solution` the whole response."""

    strategy: Strategy | None
    solution: str


def _normalised(name: str) -> str:
    return " ".join(name.casefold().split())


_BY_NAME = {_normalised(strategy.title): strategy for strategy in Strategy}


def parse_response(text: str) -> Parsed:
    """The strategy that `text` names and its solution, both without surrounding white space. Never raises."""
    name, colon, rest = text.partition(":")
    strategy = _BY_NAME.get(_normalised(name)) if colon else None
    return Parsed(strategy, (text if strategy is None else rest).strip())
