"""Answers to multiple-choice questions: one letter, perhaps with the option's text."""

import re

from reasoner.verifiers.latex import clean, words_of

MAX_STATEMENT = 400
"""Characters at the start of a statement that are looked at."""

_LETTER = "[A-J]"
_NO_SECOND = rf"(?![(\[]?{_LETTER}[)\]]?(?:[\s.,;:)]|$))"
_BRACKETED = re.compile(rf"^[(\[]\s*({_LETTER})\s*[)\]](?:[\s.:,]+{_NO_SECOND}(.*))?$", re.DOTALL)
_BARE = re.compile(rf"^({_LETTER})$")
_MARKED = re.compile(rf"^({_LETTER})\s*[).:,\-](?![0-9A-Za-z])\s*{_NO_SECOND}(.*)$", re.DOTALL)
_NAMED = re.compile(rf"^({_LETTER})\s+{_NO_SECOND}([A-Z(].*)$", re.DOTALL)
_FOLLOWED = re.compile(r"^([B-HJ])\s+([a-z].*)$", re.DOTALL)
_BETWEEN = re.compile(r"\b(?:or|and)\b|[\s/,;&.()\[\]]")
_SAID = re.compile(
    r"(?<!not )\b(?:is|it['’]s|be|choose|pick|select|option|choice|answer:?)\s+\W{0,3}"
    rf"({_LETTER})(?![A-Za-z0-9'’])"
)
_PREFIX = re.compile(r"^(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)\s*:?\s+", re.IGNORECASE)


def gold_choice(gold: str) -> tuple[str, str] | None:
    """The letter and the option's text of a gold that is a choice, or None."""
    text = words_of(clean(gold))
    if _several(text):
        return None
    if match := _BARE.match(text) or _BRACKETED.match(text) or _MARKED.match(text):
        return match[1], (match[2] or "").strip() if match.re is not _BARE else ""
    if (match := _NAMED.match(text)) and re.fullmatch(r"[A-Z][A-Za-z ]+", match[2]):
        return match[1], match[2].strip()
    return None


def stated_choice(statement: str) -> str | None:
    """The one letter that a statement names as its answer; None if it names none or hedges between
    several.
    """
    text = _PREFIX.sub("", words_of(clean(statement[:MAX_STATEMENT])))
    if letters := _several(text):
        return letters[0] if len(set(letters)) == 1 else None
    for pattern in (_BARE, _BRACKETED, _MARKED, _NAMED, _FOLLOWED):
        match = pattern.match(text)
        if match and not (pattern is _NAMED and match[1] == "A" and not re.match(r"[A-Z(]", match[2])):
            return match[1]
    return None


def hedged(statement: str) -> bool:
    """Whether a statement is a list of different letters."""
    text = words_of(clean(statement[:MAX_STATEMENT]))
    return len(set(_several(text))) > 1


def _several(text: str) -> str:
    """The letters of a text that is nothing but two or more letters; otherwise an empty string."""
    letters = _BETWEEN.sub("", text)
    apart = not re.search(rf"{_LETTER}{_LETTER}", text)
    return letters if apart and re.fullmatch(rf"{_LETTER}{{2,}}", letters) else ""


def choice_in_prose(text: str) -> str | None:
    """The letter that running text settles on: the first one if it begins with it, else the last one that it
    names.
    """
    if begin := stated_choice(text.strip()):
        return begin
    named = _SAID.findall(text)
    return named[-1] if named else None
