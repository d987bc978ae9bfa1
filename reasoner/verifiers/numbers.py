"""Numbers in text: find them, read them, compare them.

Covers plain, grouped (`1,234`), decimal, fraction, mixed, percent, currency and scientific notation, in
ASCII, in LaTeX and in Unicode (minus signs, digits of other scripts, vulgar fractions). Values are exact
fractions; nothing is evaluated. A percent sign is not divided by 100. `3,4` is two numbers. A number that is
part of a name (`x2`), an index, an exponent, a clock time, a ratio or a date is not a number. Time is linear
in the length of the text.

Does not cover expressions (`2+3`, `sqrt(2)`): that is reasoner.verifiers.math.
"""

import math
import re
import unicodedata
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from reasoner.verifiers.extraction import answer_texts, boxes, response_part, restated

TOLERANCE = 1e-6
"""Numbers are equal when |prediction - gold| <= TOLERANCE * max(1, |gold|). Belongs into every manifest."""

MAX_DIGITS = 1000
MAX_EXPONENT = 400
TAIL = 16_000
"""Characters at the end of a long text where the last number is looked for first."""

GoldFormat = Literal["plain", "hash_marks", "marker", "first_token"]

_MINUS = dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d", "-")
_THIN_SPACES = dict.fromkeys("\u00a0\u2009\u202f\u2007\u2005", "\u2009")
_CURRENCY = dict.fromkeys("€£¥₹₽₩￥", "$")
_OTHER = {
    "\u2044": "/",
    "\u2215": "/",
    "×": "*",
    "·": "*",
    "⋅": "*",
    "∗": "*",
    "，": ",",
    "．": ".",
    "％": "%",
    "＝": "=",
}
_TABLE = str.maketrans(_MINUS | _THIN_SPACES | _CURRENCY | _OTHER)

_LATEX = (
    (re.compile(r"\^\s?(?:\{\s?)?\\circ(?![A-Za-z])(?:\s?\})?|°|\\degree(?![A-Za-z])"), ""),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])"), "*"),
    (re.compile(r"\\[$%]"), lambda match: match[0][1]),
    (re.compile(r"\{,\}|,\\!\s?|\\,(?=[0-9]{3}(?![0-9]))"), ","),
)
_FOREIGN_DIGIT = re.compile(r"[^\W\d_]|[^\x00-\x7f]")
_VULGAR = re.compile("[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞⅐⅑⅒]")

_INT = r"(?>[1-9][0-9]{0,2}(?:[,\u2009][0-9]{3})++(?![0-9])|[0-9]++)"
_DECIMAL = rf"(?>{_INT}(?:\.[0-9]++)?+|(?<![0-9A-Za-z])\.[0-9]++)"
_EXPONENT = r"(?:\{\s?[-+]?[0-9]{1,6}\s?\}|[-+]?[0-9]{1,6}(?![0-9]))"
_PART = rf"\s?(?:\{{\s?(-?{_DECIMAL})\s?\}}|([0-9]))"
_FRAC = re.compile(rf"\\[dtc]?frac{_PART}{_PART}")
_SLASH = re.compile(r"([0-9]++)\s?/\s?([0-9]++)")
_PLAIN = re.compile(_DECIMAL)
_TIMES_TEN = re.compile(rf"\s?[*xX]\s?10\s?(?:\^|\*\*)\s?({_EXPONENT})")
_E = re.compile(r"[eE]([-+]?[0-9]{1,6})(?![0-9A-Za-z_])")
_POWER = re.compile(rf"\s?(?:\^|\*\*)\s?({_EXPONENT})")
_OVER = re.compile(rf"\s?/\s?\$?({_DECIMAL})")
# What makes the number before it a part of something else: a power tower, a base, a date, a time.
_SPOILER = re.compile(r"(?=\s?\^)|(?=\*\*[0-9{(])|(?=_[0-9{])|(?:[/:][0-9.]++)++")
# What is no number: a command, a name, an index or exponent, a time, a ratio or a date.
_SKIP = re.compile(
    r"\\[A-Za-z]++|\*\*\s?\{?[-+]?[0-9.]++|[A-Za-z_][A-Za-z0-9_]*+(?:(?<=[0-9])[.,][0-9]++)?"
    r"|[_^]\s?\{?\s?[-+]?[0-9.]++"
    r"|[0-9]++(?:[:/][0-9]++){2,}|[0-9]++:[0-9]++"
)
_START = re.compile(r"[0-9.\\A-Za-z_^]|(?<=[0-9])\*\*(?=\s?\{?[-+]?[0-9])")
_OPENERS = set("=([{<>≈")
_CLOSERS = set(")]}%'")
_CALCULATION = re.compile(r"[\s$(){}%*+/÷=≈-]*+")
_MARKER_GOLD = re.compile(r"the answer is\s*:?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Found:
    """A number in a text: where it stands and its exact value, None for `1/0`, `11 7/6` and `9^{9^9}`."""

    value: Fraction | None
    start: int
    end: int


def normalise(text: str) -> str:
    """`text` with Unicode and LaTeX spellings of signs, digits and separators in one plain form."""
    text = text.translate(_TABLE)
    if not text.isascii():
        text = _VULGAR.sub(_vulgar, text)
        text = _FOREIGN_DIGIT.sub(_ascii_digit, text)
    for pattern, replacement in _LATEX:
        text = pattern.sub(replacement, text)
    return text


def _ascii_digit(match: re.Match[str]) -> str:
    digit = unicodedata.decimal(match[0], None)
    return match[0] if digit is None else str(digit)


def _vulgar(match: re.Match[str]) -> str:
    value = unicodedata.normalize("NFKC", match[0]).replace("\u2044", "/")
    before = match.string[match.start() - 1 : match.start()]
    return f" {value}" if before.isdigit() else value


def parse_number(text: str) -> Fraction | None:
    """The number that `text` as a whole writes, or None. Currency, percent sign and a period may stand
    around.
    """
    text = normalise(text).strip()
    if len(text) > 4 * MAX_DIGITS:
        return None
    sign = ""
    while text and text[0] in "$*+- \u2009":
        if text[0] in "+-":
            if sign:
                return None
            sign = text[0]
        text = text[1:]
    text = text.rstrip(" $*%\u2009")
    text = text.removesuffix(".").rstrip(" $*%\u2009")
    if text[:1] + text[-1:] in ("()", "{}"):
        text = text[1:-1].strip()
    number = _read(text, 0)
    if number is None or number[0] is None or number[1] != len(text):
        return None
    return -number[0] if sign == "-" else number[0]


def last_number(text: str) -> Fraction | None:
    """The last number in `text`, or None where there is none or where it has no value."""
    tail = text[-TAIL:]
    if len(tail) < len(text):
        found = list(find_numbers(tail))
        if found and found[-1].start > TAIL // 2:
            return found[-1].value
    last = deque(find_numbers(text), maxlen=1)
    return last[0].value if last else None


def find_numbers(text: str) -> Iterator[Found]:
    """Every number in `text`, in order; positions are those of `normalise(text)`."""
    text = normalise(text)
    position = 0
    while start := _START.search(text, position):
        position = start.start()
        skip = _SKIP.match(text, position)
        number = None if skip and skip[0][0].isdigit() else _read(text, position)
        if number:
            sign, begin = _sign(text, position)
            value, position = number
            yield Found(-value if value is not None and sign < 0 else value, begin, position)
        else:
            position = skip.end() if skip else position + 1


def _sign(text: str, start: int) -> tuple[int, int]:
    """The sign that belongs to the number at `start`, and where the number begins with it.

    A minus that touches the number is its sign unless an operand stands before it (`5-3`, `5 -3`, `x-3`); a
    minus with a space after it is a sign only behind an operator or opening bracket (`= - 7`), else a dash or
    a bullet.
    """
    before = text[max(0, start - 12) : start]
    tight = before.rstrip("$")
    spaced = tight.rstrip(" ")
    if not spaced.endswith(("-", "+")):
        return 1, start
    left = spaced[:-1]
    operand = left.rstrip(" $")
    begin = start - (len(before) - len(left))
    touching = spaced == tight
    ahead = operand[-1:]
    if touching:
        binary = ahead.isdigit() or ahead in _CLOSERS or (left[-1:].isalpha() and left[-1:].isascii())
        if ahead and left[-1:] == "$" and ahead.isdigit() and not left.endswith(" $"):
            binary = True
    else:
        binary = ahead not in _OPENERS
    if binary or spaced.endswith("+"):
        return 1, start if binary else begin
    return -1, begin


def _read(text: str, start: int) -> tuple[Fraction | None, int] | None:
    """The unsigned number that starts at `start`: its value and its end, or None if none starts there."""
    if fraction := _FRAC.match(text, start):
        return _ratio(*_parts(fraction)), fraction.end()
    plain = _PLAIN.match(text, start)
    if plain is None:
        return None
    end = plain.end()
    value = _decimal(plain[0])
    if plain[0].isdigit():
        gap = end + (text[end : end + 1] == " ")
        over = _FRAC.match(text, gap) or (_SLASH.match(text, gap) if gap > end else None)
        if over:
            spoiled = _SPOILER.match(text, over.end())
            return (None if spoiled else _mixed(value, *_parts(over))), over.end()
    if power := _TIMES_TEN.match(text, end) or _E.match(text, end):
        value, end = _times_power(value, Fraction(10), power[1]), power.end()
    elif power := _POWER.match(text, end):
        value, end = _times_power(Fraction(1), value, power[1]), power.end()
    elif over := _OVER.match(text, end):
        value, end = _ratio(plain[0], over[1]), over.end()
    spoiled = _SPOILER.match(text, end)
    return (None, spoiled.end()) if spoiled else (value, end)


def _parts(match: re.Match[str]) -> tuple[str, str]:
    numerator, denominator = (group for group in match.groups() if group is not None)
    return numerator, denominator


def _decimal(text: str) -> Fraction | None:
    text = text.replace(",", "").replace("\u2009", "")
    return Fraction(text) if len(text) <= MAX_DIGITS else None


def _ratio(numerator: str, denominator: str) -> Fraction | None:
    top, bottom = _decimal(numerator), _decimal(denominator)
    return None if top is None or not bottom else top / bottom


def _mixed(whole: Fraction | None, numerator: str, denominator: str) -> Fraction | None:
    """`3 1/2`; None where the fraction is not a proper one."""
    part = _ratio(numerator, denominator)
    return None if whole is None or part is None or not 0 <= part < 1 else whole + part


def _times_power(factor: Fraction | None, base: Fraction | None, exponent: str) -> Fraction | None:
    power = int(exponent.strip("{} "))
    if factor is None or base is None or abs(power) > MAX_EXPONENT or (base == 0 and power < 0):
        return None
    if base != 10 and base.denominator * abs(base.numerator) > 10**6:
        return None
    return factor * base**power


def numbers_equal(prediction: Fraction | float | None, gold: Fraction | float | None) -> bool:
    """Whether |prediction - gold| <= TOLERANCE * max(1, |gold|), exactly; None and NaN equal nothing."""
    if prediction is None or gold is None:
        return False
    if not (math.isfinite(prediction) and math.isfinite(gold)):
        return False
    exact = Fraction(gold)
    return abs(Fraction(prediction) - exact) <= Fraction(str(TOLERANCE)) * max(Fraction(1), abs(exact))


def canonical_number(value: Fraction) -> str:
    """One spelling a value: an integer, a decimal where it ends within 12 places, else a reduced fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    scaled = value * 10**12
    if scaled.denominator == 1:
        digits = str(abs(scaled.numerator)).zfill(13)
        return f"{'-' if value < 0 else ''}{digits[:-12]}.{digits[-12:].rstrip('0')}"
    return f"{value.numerator}/{value.denominator}"


def read_gold(cell: object, answer_format: GoldFormat) -> str | None:
    """The gold number of a data set's cell in canonical form, or None where it can't be read as one number.

    `plain` reads the whole cell, `hash_marks` what follows the last `####`, `marker` what follows the last
    "The answer is:", `first_token` the text up to the first space. Raises ValueError for another format.
    """
    if answer_format not in ("plain", "hash_marks", "marker", "first_token"):
        raise ValueError(f"answer_format {answer_format!r}: use plain, hash_marks, marker or first_token")
    if isinstance(cell, bool) or cell is None:
        return None
    text = str(cell).strip()
    if answer_format == "hash_marks":
        text = text.rpartition("####")[2] if "####" in text else ""
    elif answer_format == "marker":
        marks = list(_MARKER_GOLD.finditer(text))
        text = text[marks[-1].end() :] if marks else ""
    elif answer_format == "first_token":
        text = text.split(maxsplit=1)[0] if text else ""
    value = parse_number(text)
    return None if value is None else canonical_number(value)


def extract_number(response: str) -> Fraction | None:
    """The number that a response gives as its answer, or None (unparsed). `response` is the model's text
    alone.

    In this order: the last non-empty balanced box; the text behind the last explicit marker that a number
    follows; the last number. A box without a number is an answer that is no number. `18 + 5 = 23` is read as
    23. Thinking blocks, what follows an invented next question, and an answer that is then withdrawn ("wait,
    it should be 8") do not count.
    """
    text = response_part(response)
    found = [box for box in boxes(text) if box.content.strip()]
    if found:
        later = restated(text[found[-1].end :])
        again = _stated(later) if later else None
        if again is not None:
            return again
        box = found[-1].content
        whole = parse_number(box)
        return whole if whole is not None else _stated(box)
    for answer in answer_texts(text):
        value = _stated(answer)
        if value is not None:
            later = restated(answer)
            again = _stated(later) if later else None
            return value if again is None else again
    return last_number(text)


def _stated(text: str) -> Fraction | None:
    """The first number of `text`, or the result of the calculation that it begins."""
    value, end = None, None
    plain = normalise(text)
    for found in find_numbers(text):
        between = "=" if end is None else plain[end : found.start]
        if not _CALCULATION.fullmatch(between):
            break
        if "=" in between:
            value = found.value
        end = found.end
    return value
