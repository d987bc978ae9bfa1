"""From what a response says about its answer to the answer itself: `so the result is $5$ cm.` becomes `$5$ cm`.

Covers one sentence or short answer in English prose, and the last formula or number of any text. It never reads values.
"""

import re

from reasoner.verifiers.latex import words_of
from reasoner.verifiers.numbers import find_numbers, normalise

_DISPLAY = r"\\\[(?:[^\\]|\\(?!\]))*\\\]|\$\$[^$]*\$\$"
_INLINE = r"\\\((?:[^\\]|\\(?!\)))*\\\)|(?<![\\$])\$(?:[^$\\]|\\.)+\$(?![0-9])"
MATH_SPAN = re.compile(f"{_DISPLAY}|{_INLINE}", re.DOTALL)
_SENTENCE_END = re.compile(r"\n\s*\n|(?<=[^\s:=,])\n|[.!?。！？](?=[\s*_]|$)")
_COPULA = re.compile(
    r"\b(?:is|are|be|equals?|was|were|becomes?|get|gives?|yields?|obtain|have|to|that|therefore|thus|so|hence)\b[\s:,*_]*"
)
_WORD = re.compile(r"(?<!\\)(?<![A-Za-z\\{])[A-Za-z]{2,}|[\u00c0-\u024f\u0400-\u04ff\u0600-\u06ff\u0900-\u097f\u3040-\u9fff]+")
_TERMS = frozenset(
    ["sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "sqrt", "pi", "theta", "alpha", "beta", "gamma", "lambda", "infinity", "inf", "and", "or", "mod", "percent", "percentage", "pct", "cm", "mm", "km", "kg", "mg", "ml", "mi", "ft", "lb", "oz", "hr", "hrs", "min", "sec", "deg", "usd", "am", "pm"]
)
_FUNCTION_WORDS = frozenset(
    ["the", "is", "it", "we", "so", "of", "that", "this", "there", "because", "they", "you", "he", "she", "can", "not", "no", "if", "in", "to", "at", "by", "as", "for", "with", "was", "has", "have", "will"]
)
_TRAILING = re.compile(r"\s*(?:\\?%|percent(?:age)?\b|pct\b|\\text\{[^{}]*\}|[A-Za-z]{1,12}(?:\^?[23²³])?(?=\s*[.,)]|\s*$))?")
_PAIR = re.compile(r"\s*(?:,?\s*(?:and|or)\b|,)\s*")


def has_prose(text: str) -> bool:
    """Whether `text` holds running words besides formulas, units and function names."""
    outside = MATH_SPAN.sub(" ", text)
    words = [word.lower() for word in _WORD.findall(outside)]
    if any(not word.isascii() for word in words):
        return True
    words = [word for word in words if word not in _TERMS]
    return len(words) > 3 or any(word in _FUNCTION_WORDS for word in words)


def first_sentence(text: str) -> str:
    """`text` up to the end of its first sentence or paragraph; a full stop inside a formula does not count."""
    spans = [(m.start(), m.end()) for m in MATH_SPAN.finditer(text[:4000])]
    for end in _SENTENCE_END.finditer(text, 0, min(len(text), 4000)):
        if end.start() == 0 or any(a < end.start() < b for a, b in spans):
            continue
        before = text[: end.start()]
        if before.strip(" \t\r\n$*_"):
            return before
    return text


def reduce(sentence: str) -> str | None:
    """The answer inside a sentence that states it; None where the sentence holds none."""
    sentence = sentence.strip()
    if not sentence:
        return None
    if not has_prose(sentence):
        return sentence
    if span := MATH_SPAN.match(sentence):
        return _spans_from(sentence, span)
    ends = [m.end() for m in _COPULA.finditer(sentence)]
    for end in reversed(ends):
        tail = sentence[end:].strip()
        if tail and not has_prose(tail) and re.search(r"[0-9\\$]", tail):
            return tail
    return None


def last_formula_or_number(text: str) -> str | None:
    """The last formula between math delimiters or the last number in prose, whichever stands further back."""
    spans = [span for span in MATH_SPAN.finditer(text) if not has_prose(span[0].strip("$\\()[] "))]
    last = spans[-1] if spans else None
    start = last.end() if last else 0
    number = None
    if last is None or re.search(r"[0-9]", text[start:]):
        rest = text[start:]
        plain = normalise(rest)
        for found in find_numbers(rest):
            number = plain[found.start : found.end] + _TRAILING.match(plain, found.end)[0]  # type: ignore[index]
    if number is not None:
        return number
    return _spans_from(text, last) if last else None


def _spans_from(text: str, span: re.Match[str]) -> str:
    """The formula at `span` with formulas that are joined to it and the unit behind."""
    end = span.end()
    while (joint := _PAIR.match(text, end)) and (following := MATH_SPAN.match(text, joint.end())):
        end = following.end()
    tail = _TRAILING.match(text, end)
    return text[span.start() : tail.end() if tail else end]


def is_words(text: str) -> bool:
    """Whether a cleaned text is words only: no digits, commands or operators."""
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z'’\- ]*", words_of(text)))
