"""Lists, sets, tuples, intervals and unions: what kind of collection a text writes, and its items."""

import re
from dataclasses import dataclass
from typing import Literal

from reasoner.verifiers.latex import closing, cut, words_of

Kind = Literal["list", "set", "tuple", "interval", "union"]

_MEMBER = re.compile(r"^[A-Za-z](?:_\{?[A-Za-z0-9]+\}?)?\s*\\in(?![A-Za-z])\s*")
_SUCH_THAT = re.compile(r"^\\\{\s*[A-Za-z]\s*(?:\\mid(?![A-Za-z])|\\colon(?![A-Za-z])|[|:])([^{}]*)\\\}$")
_ORDER = re.compile(r"(<|>|\\le(?![A-Za-z])|\\ge(?![A-Za-z]))")
_VARIABLE = re.compile(r"[A-Za-z](?:_\{?[A-Za-z0-9]+\}?)?|\\(?:theta|alpha|beta|lambda)")
_FLIPPED = str.maketrans("<>", "><")
_PLUS_MINUS = re.compile(r"\\pm(?![A-Za-z])")
_MINUS_PLUS = re.compile(r"\\mp(?![A-Za-z])")
_WORDS = ("and", "or")


@dataclass(frozen=True, slots=True)
class Shape:
    """A collection: `ends` are the brackets of an interval."""

    kind: Kind
    items: tuple[str, ...]
    ends: str = ""


def without_membership(text: str) -> str:
    """`x \\in S` as `S`, and `\\{x : P\\}` as `P`."""
    match = _SUCH_THAT.match(text)
    return match[1].strip() if match else _MEMBER.sub("", text)


def shape(text: str) -> Shape | None:
    """The collection that a cleaned text writes as a whole, or None for a single value."""
    text = without_membership(text.strip())
    if (parts := _union(text)) is not None:
        return Shape("union", parts)
    if (enclosed := _enclosed(text)) is not None:
        return enclosed
    spread = words_of(text)
    groups = [part for part in cut(spread, ";", ("or",)) if part]
    if len(groups) > 1:
        counts = {len(cut(group, ",", ("and",))) for group in groups}
        if len(counts) == 1 and counts != {1}:
            return Shape("list", tuple(f"({group})" for group in groups))
    items = [part for part in cut(spread, ",;", _WORDS) if part]
    if len(items) > 1 or (_PLUS_MINUS.search(text) and "\\{" not in text):
        return Shape("list", _expanded(items))
    return None


def interval_of(relation: str) -> Shape | None:
    """`x < 2`, `1 \\le x < 2` and the like as the interval that they describe; None for any other
    relation.
    """
    parts = [part.strip() for part in _ORDER.split(relation)]
    signs = {"<": "<", ">": ">", "\\le": "<=", "\\ge": ">="}
    if len(parts) == 3:
        left, sign, right = parts[0], signs[parts[1]], parts[2]
        if _VARIABLE.fullmatch(right):
            left, sign, right = right, sign.translate(_FLIPPED), left
        if not _VARIABLE.fullmatch(left) or _VARIABLE.fullmatch(right):
            return None
        closed = sign.endswith("=")
        if sign.startswith("<"):
            return Shape("interval", ("-\\infty", right), "(]" if closed else "()")
        return Shape("interval", (right, "\\infty"), "[)" if closed else "()")
    if len(parts) != 5 or not _VARIABLE.fullmatch(parts[2]):
        return None
    low, first, _, second, high = parts[0], signs[parts[1]], parts[2], signs[parts[3]], parts[4]
    if first[0] != second[0]:
        return None
    if first[0] == ">":
        low, first, second, high = high, second, first, low
    ends = ("[" if first.endswith("=") else "(") + ("]" if second.endswith("=") else ")")
    return Shape("interval", (low, high), ends)


def _union(text: str) -> tuple[str, ...] | None:
    parts = [part for part in cut(text, (r"\cup",)) if part]
    return tuple(parts) if len(parts) > 1 else None


def _enclosed(text: str) -> Shape | None:
    """The collection inside one pair of brackets around the whole text."""
    if text.startswith("\\{") and closing(text, 0) == len(text) - 1 and text.endswith("\\}"):
        inner = text[2:-2].strip()
        if re.search(r"\\mid(?![A-Za-z])|\||:", inner):
            return None
        return Shape("set", _expanded([part for part in cut(words_of(inner), ",;", _WORDS) if part]))
    if text[:1] not in ("(", "[", "{", "]") or len(text) < 2:
        return None
    if text[0] != "]" and closing(text, 0) != len(text) - 1:
        return None
    inner, ends = text[1:-1].strip(), text[0] + text[-1]
    items = [part for part in cut(inner, ",;") if part]
    if ends == "{}":
        return Shape("list", _expanded(items)) if len(items) > 1 else None
    if len(items) == 2 and (ends in ("[]", "[)", "(]") or (ends == "()" and "\\infty" in inner)):
        return Shape("interval", tuple(items), ends)
    if len(items) > 1:
        return Shape("tuple" if ends == "()" else "list", tuple(items))
    return None


def _expanded(items: list[str]) -> tuple[str, ...]:
    """Every item with one plus-minus sign as its two values."""
    found: list[str] = []
    for item in items:
        if len(_PLUS_MINUS.findall(item)) == 1 and "(" not in item[:1]:
            found.append(_MINUS_PLUS.sub("-", _PLUS_MINUS.sub("+", item)).lstrip("+ "))
            found.append(_MINUS_PLUS.sub("+", _PLUS_MINUS.sub("-", item)))
        else:
            found.append(item)
    return tuple(found)
