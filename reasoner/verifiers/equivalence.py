"""Whether two answer texts are the same answer: numbers, lists, tuples, intervals, equations, words,
expressions.

An answer is cut into its parts first and every atom is compared by what it is: numbers exactly, other
expressions through expressions.py. Recursion is bounded by the depth of the brackets that the text really
has. The conventions stand in MathPolicy. Does not cover finding an answer in a response (extraction.py,
statement.py).
"""

import re
from functools import lru_cache

from reasoner.verifiers import expressions
from reasoner.verifiers.latex import clean, closing, cut, plain_syntax, words_of
from reasoner.verifiers.policy import MathPolicy
from reasoner.verifiers.quantities import (
    CLOCK,
    Result,
    compare_bases,
    compare_numbers,
    read_number,
    same_time,
)
from reasoner.verifiers.shapes import Shape, interval_of, shape, without_membership
from reasoner.verifiers.statement import is_words
from reasoner.verifiers.units import conflicting, measure

MAX_LENGTH = 4000
"""Characters of the longest answer that is compared other than letter by letter."""
MAX_DEPTH = 12

_NAME_LIKE = re.compile(
    r"^(?=.*[A-Za-z])(?!.*[0-9][A-Za-z(\\])(?:[A-Za-z(){}\[\]|_,:' .0-9]|\\[A-Za-z]+|\^\{?-?1\}?)+$"
)
_NOT_NAMES = re.compile(r"\\(?:frac|sqrt|cdot|times|pm|sin|cos|tan|log|ln)(?![A-Za-z])")
_EQUALS = re.compile(r"(?<![<>!=\\:])=(?!=)")
_RELATION = re.compile(r"<|>|\\le(?![A-Za-z])|\\ge(?![A-Za-z])|\\ne(?![A-Za-z])")
_RATIO = re.compile(r"^[^:]+(?::[^:]+)+$")
_THOUSANDS = re.compile(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))")
_BRACKETED_COMMA = re.compile(r"[(\[][^()\[\]]*[0-9],[0-9]{3}")
_LONG_WORD = re.compile(r"(?<![\\A-Za-z{])[A-Za-z]{4,}")
_TWO_NUMBERS = re.compile(
    r"(?<!\\frac )(?<![0-9_])[0-9]+ +[0-9]|(?<![A-Za-z0-9_.^{}\]\\])(?:[0-9]+|\{[0-9]+\}) *\{ *[0-9]"
)
_MODULUS = re.compile(r"(?:\\pmod|\\bmod|\\mod|\(\s*mod|\bmod)\s*\{?\s*([0-9A-Za-z]+)\s*\}?\s*\)?$")
_PRIMES = re.compile(r"[A-Za-z]'")


@lru_cache(maxsize=2048)
def equivalent(gold: str, prediction: str, policy: MathPolicy) -> Result:
    """Whether two answers are equal and one word why. Neither is a whole response."""
    left, right = clean(gold, policy.overescaped), clean(prediction, policy.overescaped)
    if not left:
        return False, "gold_unreadable"
    if not right:
        return False, "unparsed"
    if _squeezed(left) == _squeezed(right):
        return True, "identical"
    if max(len(left), len(right)) > MAX_LENGTH:
        return False, "too_long"
    readings = _without_thousands(left), _without_thousands(right)
    result = _compare(*readings, policy, 0)
    return result if result[0] or readings == (left, right) else _compare(left, right, policy, 0)


def _without_thousands(text: str) -> str:
    """`1,234` as `1234`, but not inside round or square brackets, where a comma separates."""
    return text if _BRACKETED_COMMA.search(text) else _THOUSANDS.sub("", text)


def _squeezed(text: str) -> str:
    """`text` for comparing letter by letter: no spaces but between digits, no text commands, no braces around
    a single character.
    """
    text = re.sub(r"(?<![0-9])\s+|\s+(?![0-9])", "", words_of(text))
    return re.sub(r"\{([A-Za-z0-9])\}(?![A-Za-z0-9])", r"\1", text)


def _compare(gold: str, prediction: str, policy: MathPolicy, depth: int) -> Result:
    if depth > MAX_DEPTH:
        return False, "too_deep"
    if _squeezed(gold) == _squeezed(prediction):
        return True, "identical"
    if ("\\ldots" in gold) != ("\\ldots" in prediction):
        return False, "ellipsis"  # the parser drops the dots
    numeric = compare_numbers(gold, prediction, policy, depth > 0)
    if numeric is not None:
        return numeric
    for rule in (_compare_special, _compare_collections, _compare_equations, _compare_words):
        result = rule(gold, prediction, policy, depth)
        if result is not None:
            return result
    if _PRIMES.search(gold) or _PRIMES.search(prediction):
        return False, "wrong"  # the parser drops a prime, so f' would equal f
    left, right = measure(gold), measure(prediction)
    if policy.units == "compare" and conflicting(left.unit, right.unit):
        return False, "unit"
    texts = _in_one(left.body, policy), _in_one(right.body, policy)
    if any(_TWO_NUMBERS.search(text) for text in texts):  # the parser would read 1 2 as 12 and {1}{2} as 3
        return False, "gold_unparsed" if _TWO_NUMBERS.search(texts[0]) else "ill_formed"
    if any(_LONG_WORD.search(plain_syntax(text)) for text in texts):
        return False, "words"  # the parser would read a word as a product of variables
    if left.percent != right.percent:
        sides = zip(texts, (left, right), strict=True)
        a, b = (f"({text})/100" if side.percent else text for text, side in sides)
        result = expressions.equal(a, b, policy)
        if result[0] or policy.percent == "value":
            return result
    return expressions.equal(*texts, policy)


def _in_one(body: str, policy: MathPolicy) -> str:
    """The words of a body; a number that is written with a space (`1 1/2`, `1 000`) as a fraction."""
    text = words_of(body)
    number = read_number(text, policy) if _TWO_NUMBERS.search(text) else None
    return text if number is None else rf"\frac{{{number[0].numerator}}}{{{number[0].denominator}}}"


def _compare_special(gold: str, prediction: str, policy: MathPolicy, depth: int) -> Result | None:
    """Clock times, ratios and numbers in another base."""
    left, right = words_of(gold), words_of(prediction)
    a, b = CLOCK.match(left), CLOCK.match(right)
    if a and b:
        return same_time(a, b), "time"
    if ":" in left and ":" in right and "=" not in left + right:
        pair = cut(left, ":"), cut(right, ":")
        return (_ratio(*pair, policy, depth), "ratio") if min(map(len, pair)) > 1 else None
    if (":" in left) != (":" in right) and "=" not in left + right:
        ratio, other = (left, right) if ":" in left else (right, left)
        terms, value = cut(ratio, ":"), read_number(other, policy)
        numbers = [read_number(term, policy) for term in terms]
        if value and len(terms) == 2 and all(numbers) and not CLOCK.match(ratio):
            return bool(numbers[1][0]) and numbers[0][0] / numbers[1][0] == value[0], "ratio"  # type: ignore[index]
    return _compare_residues(left, right, policy, depth) or compare_bases(gold, prediction, policy)


def _compare_residues(gold: str, prediction: str, policy: MathPolicy, depth: int) -> Result | None:
    """`x \\equiv 7 \\pmod{10}` and `7 \\bmod 10`: the residue counts, and the moduli where both sides give
    one.
    """
    (a, left), (b, right) = _residue(gold), _residue(prediction)
    if (a, b) == (gold, prediction):
        return None
    if left and right and left != right:
        return False, "modulus"
    return _compare(a, b, policy, depth + 1)[0], "residue"


def _residue(text: str) -> tuple[str, str]:
    match = _MODULUS.search(text)
    value = text[: match.start()] if match else text
    return (cut(value, (r"\equiv",))[-1] or value).strip(), match[1].strip() if match else ""


def _ratio(gold: list[str], prediction: list[str], policy: MathPolicy, depth: int) -> bool:
    if len(gold) != len(prediction):
        return False
    left = [read_number(term, policy) for term in gold]
    right = [read_number(term, policy) for term in prediction]
    if all(left) and all(right):
        a, b = [term[0] for term in left if term], [term[0] for term in right if term]
        return all(a[0] * y == b[0] * x for x, y in zip(a, b, strict=True)) and any(b)
    return all(_compare(x, y, policy, depth + 1)[0] for x, y in zip(gold, prediction, strict=True))


def _compare_collections(gold: str, prediction: str, policy: MathPolicy, depth: int) -> Result | None:
    """Lists, sets, tuples, intervals and unions; None where neither side is one or a set meets a relation."""
    gold, prediction = _without_unit(gold), _without_unit(prediction)
    left, right = shape(gold), shape(prediction)
    if left is None and right is None:
        bare = _bare(gold), _bare(prediction)
        return None if bare == (gold, prediction) else _compare(*bare, policy, depth + 1)
    if left is None or right is None:
        single = gold if left is None else prediction
        whole = left or right
        if _RELATION.search(single) or re.search(r"\\(?:begin|emptyset|mathbb)", single):
            return None
        if _EQUALS.search(single):
            return None
        if whole and len(whole.items) == 1:
            pair = (whole.items[0], single) if left else (single, whole.items[0])
            return _compare(*pair, policy, depth + 1)
        every = whole is not None and all(
            _compare(*((item, single) if left else (single, item)), policy, depth + 1)[0]
            for item in whole.items
        )
        return every and whole is not None and whole.kind == "list", "count"
    same = _same_shape(left, right, policy, depth)
    if not same and "union" in (left.kind, right.kind):
        return None
    return same, left.kind


def _without_unit(text: str) -> str:
    """A bracketed collection without the unit behind it: `(1, 2) \\text{ cm}`."""
    return measure(text).body if text[:1] in "([\\" and text.endswith("}") and "\\text" in text else text


def _same_shape(left: Shape, right: Shape, policy: MathPolicy, depth: int) -> bool:
    kinds = {left.kind, right.kind}
    if "interval" in kinds and kinds <= {"interval", "tuple"}:
        ends = left.ends or "()", right.ends or "()"
        return ends[0] == ends[1] and _in_order(left, right, policy, depth)
    if "interval" in kinds or kinds == {"tuple", "set"} or kinds == {"tuple", "union"}:
        return False
    if "tuple" in kinds or ("set" not in kinds and "union" not in kinds and policy.lists == "ordered"):
        return _in_order(left, right, policy, depth)
    if len(left.items) * len(right.items) > 2500:
        return False
    return _covers(left.items, right.items, policy, depth) and _covers(
        right.items, left.items, policy, depth, swapped=True
    )


def _in_order(left: Shape, right: Shape, policy: MathPolicy, depth: int) -> bool:
    return len(left.items) == len(right.items) and all(
        _compare(a, b, policy, depth + 1)[0] for a, b in zip(left.items, right.items, strict=True)
    )


def _covers(
    some: tuple[str, ...], others: tuple[str, ...], policy: MathPolicy, depth: int, swapped: bool = False
) -> bool:
    """Whether every item of `some` equals one of `others`; repeated items count once."""
    for item in some:
        pairs = ((other, item) if swapped else (item, other) for other in others)
        if not any(_compare(a, b, policy, depth + 1)[0] for a, b in pairs):
            return False
    return True


def _bare(text: str) -> str:
    """`text` without one pair of round brackets around all of it and without `x \\in`."""
    text = without_membership(text)
    if text.startswith("(") and closing(text, 0) == len(text) - 1 and len(text) > 2:
        return text[1:-1].strip()
    return text


def _compare_equations(gold: str, prediction: str, policy: MathPolicy, depth: int) -> Result | None:
    """Equations and assignments; None where neither side has an equals sign or where solving must decide."""
    left, right = _members(gold), _members(prediction)
    if len(left) < 2 and len(right) < 2:
        if _RELATION.search(gold) or _RELATION.search(prediction):
            return _compare_relations(gold, prediction, policy, depth)
        return (
            None
            if (gold, prediction) == (left[0], right[0])
            else _compare(left[0], right[0], policy, depth + 1)
        )
    if len(left) > 1 and len(right) > 1:
        if _squeezed(left[0]) == _squeezed(right[0]) and _is_name(left[0]):
            return _compare(left[-1], right[-1], policy, depth + 1)
        if _is_name(left[0]) and _is_name(right[0]) and not _letters(left[-1]) and not _letters(right[-1]):
            same = _compare(left[-1], right[-1], policy, depth + 1)
            return same if policy.variable_names == "free" else (False, "name")
        return expressions.equal(f"{left[0]}={left[-1]}", f"{right[0]}={right[-1]}", policy)
    if len(left) > 1:
        if policy.left_side == "required" or not _is_name(left[0]):
            return False, "left_side"
        return _compare(left[-1], prediction, policy, depth + 1)
    if _is_name(right[-1]) and not _letters(right[0]):
        return _compare(gold, right[0], policy, depth + 1)
    if not _is_name(right[0]) and _letters(right[0]):
        return False, "left_side"
    return _compare(gold, right[-1], policy, depth + 1)


def _compare_relations(gold: str, prediction: str, policy: MathPolicy, depth: int) -> Result | None:
    gold, prediction = _ascending(gold), _ascending(prediction)
    if _squeezed(gold) == _squeezed(prediction):
        return True, "relation"
    either = _RELATION.search(gold) and _RELATION.search(prediction)
    if either or shape(gold) or shape(prediction):
        if not either and policy.intervals == "strict":
            return False, "notation"
        if not either:
            left, right = _interval(gold), _interval(prediction)
            if left and right and {left.kind, right.kind} <= {"interval", "tuple"}:
                return _same_shape(left, right, policy, depth), "interval"
        return expressions.equal(without_membership(gold), without_membership(prediction), policy)
    return False, "relation"


def _interval(text: str) -> Shape | None:
    text = without_membership(text)
    return shape(text) or interval_of(text)


def _ascending(text: str) -> str:
    """A chain of two or more > or >= as one of < or <=, turned around."""
    parts = re.split(r"(>|\\ge(?![A-Za-z]))", text)
    if len(parts) < 5 or re.search(r"<|\\le(?![A-Za-z])", text):
        return text
    signs = {">": "<", "\\ge": "\\le "}
    return "".join(signs.get(part, part) for part in reversed(parts))


def _members(text: str) -> list[str]:
    """The members of a chain of equations; what follows an approximation sign is left out."""
    parts = cut(text, (r"\approx", r"\simeq", r"\doteq"))
    exact = parts[0] or parts[-1]
    return [part for part in cut(exact, "=") if part] or [text]


def _is_name(text: str) -> bool:
    """Whether the left side of an equation only names what is on the right: `x`, `f(2)`, `|AB|`, `A:B`, `(p,
    q)`.
    """
    plain = words_of(text)
    return bool(_NAME_LIKE.match(plain)) and not _NOT_NAMES.search(plain)


def _letters(text: str) -> bool:
    return bool(re.search(r"[A-Za-z]", re.sub(r"\\[A-Za-z]+|(?<![A-Za-z])(?:pi|e|i)(?![A-Za-z])", "", text)))


def _compare_words(gold: str, prediction: str, policy: MathPolicy, depth: int) -> Result | None:
    """Answers in words; None where a short run of letters may be a product of variables."""
    left, right = words_of(gold), words_of(prediction)
    worded = [side for side in (left, right) if is_words(side) and "\\" not in plain_syntax(side)]
    if not worded:
        return None
    if len(worded) == 2 and _plain_words(left) == _plain_words(right):
        return True, "words"
    if all(len(side.replace(" ", "")) > 3 for side in worded) or len(left + right) == 2:
        return False, "words"
    return None


def _plain_words(text: str) -> str:
    """Words for comparing: no articles, no plural s, no case; a single letter keeps its case."""
    words = re.findall(r"[A-Za-z]+", text)
    kept = [word for word in words if word.lower() not in ("the", "a", "an")] or words
    if len(kept) == 1 and len(kept[0]) == 1:
        return kept[0]
    return " ".join(word.casefold().removesuffix("s") if len(word) > 3 else word.casefold() for word in kept)
