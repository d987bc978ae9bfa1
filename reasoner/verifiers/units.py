"""Units, currency, percent signs and multiplying words around a number."""

import re
from dataclasses import dataclass
from fractions import Fraction

from reasoner.verifiers.numbers import parse_number

_SYNONYMS = (
    ("millimeter", "mm millimeters millimetre millimetres"),
    ("centimeter", "cm centimeters centimetre centimetres"),
    ("meter", "m meters metre metres"),
    ("kilometer", "km kilometers kilometre kilometres"),
    ("inch", "inches in"),
    ("foot", "feet ft"),
    ("yard", "yards yd yds"),
    ("mile", "miles mi"),
    ("milligram", "mg milligrams"),
    ("gram", "g grams"),
    ("kilogram", "kg kilograms kgs"),
    ("ton", "tons tonne tonnes"),
    ("ounce", "ounces oz"),
    ("pound", "pounds lb lbs"),
    ("milliliter", "ml milliliters millilitre millilitres"),
    ("liter", "l liters litre litres"),
    ("second", "s sec secs seconds"),
    ("minute", "min mins minutes"),
    ("hour", "h hr hrs hours"),
    ("day", "days"),
    ("week", "weeks"),
    ("month", "months"),
    ("year", "years yr yrs"),
    ("degree", "degrees deg"),
    ("radian", "radians rad"),
    ("dollar", "dollars usd bucks $"),
    ("cent", "cents"),
    ("euro", "euros eur €"),
    ("sterling", "gbp £"),
    ("yen", "jpy ¥"),
    ("rupee", "rupees ₹"),
    ("yuan", "rmb"),
    ("watt", "watts"),
    ("joule", "joules"),
    ("newton", "newtons"),
    ("volt", "volts"),
    ("am", "am"),
    ("pm", "pm"),
    ("mph", "mph"),
)
KNOWN = {name: unit for unit, names in _SYNONYMS for name in (unit, *names.split())}
_ONE_LETTER = frozenset("mglshL")
_UNITLESS = frozenset(("unit", "units"))
_FACTORS = {
    "dozen": 12, "hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12,
}  # fmt: skip
_CURRENCY = re.compile(r"^([-+]?)\s*([$€£¥₹])\s*(?=[-+0-9.\\])")
_PERCENT = re.compile(r"\s*(?:%|percentage points?|percentage|per ?cent|pct)\s*\.?$", re.IGNORECASE)
_TAIL = re.compile(
    r"^(?P<number>.*?[0-9})])\s*(?P<unit>[$€£¥₹]|(?:[A-Za-z][A-Za-z./\-' ]*)(?:\^\s?\{?-?[0-9]\}?)?)$",
    re.DOTALL,
)
_WRAPPED = re.compile(
    r"\s*\\(?:text|textbf|textit|textrm|mathrm|mbox|operatorname|mathbf)\s*\{(?P<unit>[^{}]*)\}(?P<power>\s?\^\s?\{?-?[0-9]\}?)?$"
)
_DEGREE = re.compile(r"\s*\^\{\\circ\}\s*([CF])?$")
_NO_UNIT = frozenset((
    "about", "and", "are", "base", "between", "cos", "is", "least", "less", "ln", "log", "minus", "mod",
    "more", "most", "not", "or", "out", "pi", "plus", "sin", "tan", "than", "times", "to",
))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measure:
    """A text without its unit: `body` is what is left, `unit` a normalised name or an empty string."""

    body: str
    unit: str = ""
    percent: bool = False
    factor: Fraction = Fraction(1)


def measure(text: str, letters: bool = False) -> Measure:
    """Takes percent sign, degree sign, currency and unit off a cleaned text. Never leaves an empty body.

    With `letters` a bare letter may be a unit (`5 m`); without, it is a variable.
    """
    unit, percent, factor = "", False, Fraction(1)
    body = text.strip()
    for _ in range(4):
        before = body
        if match := _CURRENCY.match(body):
            body, unit = match[1] + body[match.end() :], unit or KNOWN[match[2]]
        if match := _PERCENT.search(body):
            body, percent = body[: match.start()].rstrip(), True
        elif (match := _DEGREE.search(body)) and not re.search(r"\\(?:sin|cos|tan|cot|sec|csc)", body):
            body, unit = body[: match.start()], "degree"
        elif match := _WRAPPED.search(body):
            name = match["unit"].strip()
            if _PERCENT.fullmatch(name):
                percent = True
            elif name.lower() in _FACTORS:
                factor *= _FACTORS[name.lower()]
            elif any(word in _NO_UNIT for word in name.lower().split()) or re.search(r"[0-9=<>]", name):
                break
            else:
                unit = _unit(name + (match["power"] or "")) or unit
            body = body[: match.start()]
        elif (match := _TAIL.match(body)) and _is_unit(match["unit"], match["number"], letters):
            words = match["unit"].split()
            while words and words[0].lower() in _FACTORS:
                factor *= _FACTORS[words.pop(0).lower()]
            if words:
                unit = _unit(" ".join(words)) or unit
            body = match["number"].rstrip()
        if body == before:
            break
    if not body.strip():
        return Measure(text.strip())
    return Measure(body.strip(), unit, percent, factor)


def _is_unit(words: str, number: str, letters: bool) -> bool:
    """Whether letters behind a number are a unit and not variables or a sentence."""
    if words in ("$", "€", "£", "¥", "₹"):
        return True
    plain = re.sub(r"\^.*", "", words).strip()
    parts = plain.lower().split()
    if not parts or len(parts) > 4 or any(part in _NO_UNIT for part in parts):
        return False
    if parse_number(number) is None and not (len(plain) > 1 and (plain in KNOWN or plain in _UNITLESS)):
        return False
    short = re.sub(r"[.\s]", "", plain.lower())
    if 1 < len(short) < 3 and short not in KNOWN:
        return False
    return all(len(part) > 1 or part in _ONE_LETTER for part in parts) and (
        letters or len(plain) > 1 or words != plain
    )


def _unit(name: str) -> str:
    """One spelling a unit; an unknown word stands for itself, in brackets so that it conflicts with
    nothing.
    """
    plain = re.sub(r"[{}\s.]", "", name).lower().replace("^2", "²").replace("^3", "³")
    base, power = plain.rstrip("²³"), plain[len(plain.rstrip("²³")) :]
    for word, sign in (("square", "²"), ("sq", "²"), ("cubic", "³"), ("cu", "³")):
        if base.startswith(word) and base[len(word) :] in KNOWN:
            base, power = base[len(word) :], sign
    if base in _UNITLESS or not base:
        return ""
    return KNOWN[base] + power if base in KNOWN else f"({base.removesuffix('s')}{power})"


def conflicting(first: str, second: str, strict: bool = False) -> bool:
    """Whether two units are both known and different; with `strict` unknown ones count too."""
    known = "(" not in first and "(" not in second
    return bool(first and second and first != second and (known or strict))
