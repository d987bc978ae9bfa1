"""What the worker wrote: a JSON object by request, read leniently, since the worker is not trained.

`final_answer` counts where the JSON has it and it is not null (0 is an answer); otherwise the number that the
raw text states (METHODS 4.3, 1.1.1).
"""

import json
from fractions import Fraction
from typing import Any

from reasoner.records import Outcome, Verdict
from reasoner.verifiers.numbers import canonical_number, extract_number, numbers_equal, parse_number

VERSION = 2
"""Part of every stage key that holds judged runs; counts up when an answer may be read otherwise."""


def final_answer(text: str) -> Fraction | None:
    """The number that a worker's last call answers with; None is unparsed."""
    value = field(text, "final_answer")
    if isinstance(value, bool) or value is None:
        return extract_number(text)
    if isinstance(value, int | float):
        return parse_number(str(value))
    return extract_number(value) if isinstance(value, str) else extract_number(text)


def worked_solution(text: str) -> str:
    """A sub-problem's solution as the next call is shown it: the JSON's steps and result, or else the whole text."""
    solution, result = field(text, "solution"), field(text, "result")
    if not _plain(solution):
        return text.strip()
    steps = str(solution).strip()
    return f"{steps} (result: {str(result).strip()})" if _plain(result) else steps


def judge(text: str | None, gold: str) -> Verdict:
    """The verdict on a run's last text; None is a run without an answer, which an invalid plan leaves."""
    expected = parse_number(gold)
    if expected is None:
        return Verdict(Outcome.UNSCORED, "gold_unreadable")
    if text is None:
        return Verdict(Outcome.INCORRECT, "no_plan")
    value = final_answer(text)
    if value is None:
        return Verdict(Outcome.INCORRECT, "unparsed")
    right = numbers_equal(value, expected)
    outcome, reason = (Outcome.CORRECT, "equal") if right else (Outcome.INCORRECT, "wrong")
    return Verdict(outcome, reason, canonical_number(value))


def field(text: str, key: str) -> Any:
    """The value under `key` of the first JSON object in `text` that has it, or None."""
    # strict=False: models put raw line breaks into strings.
    decoder, start = json.JSONDecoder(strict=False), text.find("{")
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            start = text.find("{", start + 1)
            continue
        if isinstance(value, dict) and key in value:
            return value[key]
        start = text.find("{", end)
    return None


def _plain(value: Any) -> bool:
    """Whether a value can be shown as it is."""
    return isinstance(value, str | int | float) and not isinstance(value, bool) and bool(str(value).strip())
