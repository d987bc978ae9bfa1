"""Quantities: numbers with units and percent signs, clock times, and numbers in another base.

Covers what is compared by value without a computer algebra system. Exact values must be equal; a value that
is written with a decimal point agrees within the project's tolerance.
"""

import re
from fractions import Fraction

from reasoner.verifiers.latex import words_of
from reasoner.verifiers.numbers import numbers_equal, parse_number
from reasoner.verifiers.policy import MathPolicy
from reasoner.verifiers.units import Measure, conflicting, measure

Result = tuple[bool, str]

_BASE = re.compile(
    r"^\(?([0-9A-Fa-f]+)\)?\s*_\s*\{?\s*(?:\\?text\s*\{)?\s*([0-9]{1,2}|two|three|five|eight|ten)\s*\}{0,2}$"
)
_BASE_NAMES = {"two": "2", "three": "3", "five": "5", "eight": "8", "ten": "10"}
_MIXED_ILL = re.compile(r"^[-+]?\(?[0-9]+\)?\s+[0-9]+\s?/\s?[0-9]+$")
_SPACED_THOUSANDS = re.compile(r"(?<![0-9])([0-9]{1,3}(?: [0-9]{3})+)(?![0-9]|\s?/)")
_DECIMAL_COMMA = re.compile(r"^([-+]?[0-9]+),([0-9]+)$")
_REPEATING = re.compile(r"^([-+]?)([0-9]*)\.([0-9]*)\\overline\s*\{([0-9]+)\}$")
CLOCK = re.compile(r"^([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?\s*([ap])?\.?\s?(?:m\.?)?$", re.IGNORECASE)


def compare_numbers(gold: str, prediction: str, policy: MathPolicy, item: bool = False) -> Result | None:
    """The comparison of two numbers; None where one side is something else.

    As an `item` of a collection unknown units matter too: `3 boys and 2 girls` is not `2 boys and 3 girls`.
    """
    left, right = read_number(gold, policy), read_number(prediction, policy, letters=True)
    if left is None or right is None:
        if policy.number_styles and (left or right):
            left, right = left or _decimal_comma(gold), right or _decimal_comma(prediction)
        if left is None or right is None:
            ill = left is not None and _MIXED_ILL.match(prediction)
            return (False, "ill_formed") if ill else None
    if policy.units == "compare" and conflicting(left[1].unit, right[1].unit, item):
        return False, "unit"
    return _numbers_agree(left, right, policy), "number"


def _numbers_agree(
    left: tuple[Fraction, Measure], right: tuple[Fraction, Measure], policy: MathPolicy
) -> bool:
    (a, gold), (b, prediction) = left, right
    exact = not (_rounded(gold.body) or _rounded(prediction.body))
    places = len(gold.body.partition(".")[2])
    if policy.rounded_gold and places and not _rounded(prediction.body):
        exact, b = False, Fraction(round(b * 10**places), 10**places)
    if gold.percent == prediction.percent:
        return _close(a, b, exact)
    true = (a / 100 if gold.percent else a, b / 100 if prediction.percent else b)
    signed = gold if gold.percent else prediction
    plain = re.fullmatch(r"[-+]?[0-9.,]+", signed.body)
    return _close(*true, exact) or bool(policy.percent == "optional" and plain and _close(a, b, exact))


def _close(gold: Fraction, prediction: Fraction, exact: bool) -> bool:
    """Exact values must be equal; rounded ones agree within the project's tolerance and to four digits."""
    if exact:
        return gold == prediction
    return numbers_equal(prediction, gold) and abs(prediction - gold) <= abs(gold) / 10**4


def _rounded(text: str) -> bool:
    return ("." in text and "overline" not in text) or bool(re.search(r"[0-9]e", text, re.IGNORECASE))


def read_number(text: str, policy: MathPolicy, letters: bool = False) -> tuple[Fraction, Measure] | None:
    """The value of a cleaned text that is one number, and what stands around it; None for anything else."""
    if len(text) > 400:
        return None
    parts = measure(words_of(text) if "\\text" not in text else text, letters)
    body = parts.body
    if body.startswith("(") and "," in body:
        return None
    if policy.number_styles:
        body = _SPACED_THOUSANDS.sub(lambda m: m[1].replace(" ", ""), body)
    if match := _REPEATING.match(body):
        value = _repeating(match)
    else:
        number = parse_number(body.replace("\\cdot", "*").replace("\\times", "*"))
        if number is None:
            return None
        value = number
    return value * parts.factor, parts


def _repeating(match: re.Match[str]) -> Fraction:
    sign, whole, fixed, cycle = match.groups()
    scale = 10 ** len(fixed)
    value = Fraction(int((whole or "0") + fixed), scale) + Fraction(
        int(cycle), scale * (10 ** len(cycle) - 1)
    )
    return -value if sign == "-" else value


def _decimal_comma(text: str) -> tuple[Fraction, Measure] | None:
    parts = measure(text)
    match = _DECIMAL_COMMA.match(parts.body)
    return (Fraction(f"{match[1]}.{match[2]}"), parts) if match else None


def same_time(left: re.Match[str], right: re.Match[str]) -> bool:
    same = all(int(left[i] or 0) == int(right[i] or 0) for i in (1, 2, 3))
    halves = (left[4] or "").lower(), (right[4] or "").lower()
    return same and (halves[0] == halves[1] or "" in halves)


def compare_bases(gold: str, prediction: str, policy: MathPolicy) -> Result | None:
    left, right = _BASE.match(gold), _BASE.match(prediction)
    if (not left and not right) or "=" in gold + prediction:
        return None
    a, b = _in_base(left, gold), _in_base(right, prediction)
    if a == b:
        return True, "base"
    if a[0].lstrip("0") == b[0].lstrip("0") and policy.base == "optional":
        return (True, "base") if left and b[1] == "" else (False, "base")
    return False, "base"


def _in_base(match: re.Match[str] | None, text: str) -> tuple[str, str]:
    """Digits and base; a subscript ten says nothing."""
    if not match:
        return re.sub(r"[\s,]", "", text).lower(), ""
    base = _BASE_NAMES.get(match[2], match[2])
    return match[1].lower(), "" if base == "10" else base
