"""Whether a solution shows how it came to its answer. A guess that is right is paid like a derivation; a rising share
of such answers says that a policy has learned to skip the work. A rule of thumb, for counting and looking at.
"""

import re

from reasoner.records import Strategy
from reasoner.verifiers.numbers import extract_number, find_numbers
from reasoner.verifiers.solutions import program_of

MIN_WORDS = 12
"""A text with more words than this and no second number may still reason in words."""

_STEP_NUMBER = re.compile(r"^[ \t]*\d+[.)][ \t]", re.MULTILINE)
_CALCULATION = re.compile(r"\d[\s$)}%]*=")
_COMMENT = re.compile(r"#[^\n]*")
_CALL = re.compile(r"\b(?!print\b|solution\b|float\b|int\b|str\b)[A-Za-z_][A-Za-z_0-9.]*\s*\(")
_LOOP = re.compile(r"\b(?:for|while)\b")
_NUMBER = re.compile(r"(?<![A-Za-z_0-9.])\d[\d_]*(?:\.\d+)?")


def shows_work(strategy: Strategy, solution: str) -> bool:
    """Prose: a number besides the answer, a calculation, or more than MIN_WORDS words. Program: two numbers, a call or
    a loop.
    """
    if strategy is Strategy.POT:
        program = _COMMENT.sub("", program_of(solution) or "")
        return bool(len(_NUMBER.findall(program)) > 1 or _CALL.search(program) or _LOOP.search(program))
    text = _STEP_NUMBER.sub("", solution)
    answer = extract_number(text)
    others = (found for found in find_numbers(text) if found.value != answer)
    return bool(_CALCULATION.search(text)) or next(others, None) is not None or len(text.split()) > MIN_WORDS
