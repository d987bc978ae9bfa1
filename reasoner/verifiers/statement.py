"""From what a response says about its answer to the answer itself: `so the result is $5$ cm.` becomes `$5$
cm`.

Covers one sentence or short answer in English prose, and the last formula or number of any text. It never
reads values.
"""

import re
from collections import deque
from dataclasses import dataclass

from reasoner.verifiers.latex import words_of
from reasoner.verifiers.numbers import find_numbers, normalise

MAX_SENTENCE = 2000
"""Characters of a sentence that are looked at."""
TAIL = 20_000
"""Characters at the end of a text in which a last formula or number is looked for."""

_DELIMITER = re.compile(r"\\[()\[\]]|\\.|\$\$?", re.DOTALL)
_CLOSED_BY = {"\\(": "\\)", "\\[": "\\]", "$": "$", "$$": "$$"}
_TEXT = re.compile(r"\\(?:text|mathrm|mbox|operatorname|textbf)[a-z]*\s*\{[^{}]*\}")
_SENTENCE_END = re.compile(r"\n\s*\n|(?<=[^\s:=,])\n|(?:(?<!\\)[.!?]|[。！？])(?=[\s*_]|$)")
_COPULA = re.compile(
    r"\b(?:is|are|be|equals?|was|were|becomes?|get|gives?|yields?|obtain|have|to|that|therefore|thus|so|hence)\b"
    r"[\s:,*_]*"
)
_WORD = re.compile(
    r"(?<!\\)(?<![A-Za-z\\{])[A-Za-z]{2,}|[\u00c0-\u024f\u0400-\u04ff\u0600-\u06ff\u0900-\u097f\u3040-\u9fff]+"
)
_TERMS = frozenset((
    "alpha", "am", "and", "beta", "cm", "cos", "cot", "csc", "deg", "exp", "ft", "gamma", "hr", "hrs",
    "inf", "infinity", "kg", "km", "lambda", "lb", "ln", "log", "mg", "mi", "min", "ml", "mm", "mod", "or",
    "oz", "pct", "percent", "percentage", "pi", "pm", "sec", "sec", "sin", "sqrt", "tan", "theta", "usd",
))  # fmt: skip
_FUNCTION_WORDS = frozenset((
    "about", "approximately", "around", "as", "at", "be", "because", "by", "can", "equal", "equals",
    "exactly", "for", "has", "have", "he", "if", "in", "is", "it", "just", "let", "nearly", "no", "not",
    "of", "only", "roughly", "she", "simply", "so", "that", "the", "there", "therefore", "they", "this",
    "to", "was", "we", "will", "with", "you",
))  # fmt: skip
_TRAILING = re.compile(
    r"\s*(?:\\?%|percent(?:age)?\b|pct\b|\\text\{[^{}]*\}|[A-Za-z]{1,12}(?:\^?[23²³])?(?=\s*[.,)]|\s*$))?"
)
_REMARK = re.compile(r"(?<=\S)\s+\((?=[^()]*(?<![\\A-Za-z])[A-Za-z]{3,})[^()]*\)[\s.]*$")
_ID_EST = re.compile(r",?\s*\b(?:i\.\s?e\.|that is),?\s+")
_SUBORDINATE = re.compile(
    r"(?:[,;]|\s)\s*\b(?:which|since|because|as|not|so|where|when|after|before|rounded|if|but|while|meaning|for"
    r"|in|of|with|that|due|per)\b"
)
_VALUE_FIRST = re.compile(r"[\s$\\(\[{*+€£-]*[0-9\\]")
_PAIR = re.compile(r"\s*(?:,?\s*(?:and|or)\b|,)\s*")


@dataclass(frozen=True, slots=True)
class Span:
    """A formula with its delimiters: `text[start:end]`."""

    start: int
    end: int
    text: str


def math_spans(text: str) -> list[Span]:
    """The formulas between delimiters; a pair of dollar signs around running words is money and no
    formula.
    """
    found: list[Span] = []
    opened: re.Match[str] | None = None
    for token in _DELIMITER.finditer(text):
        kind = token[0]
        if opened is not None and kind == _CLOSED_BY[opened[0]]:
            span = Span(opened.start(), token.end(), text[opened.start() : token.end()])
            if _is_formula(span, text):
                found.append(span)
                opened = None
            else:
                opened = token if kind == "$" else None
        elif kind in _CLOSED_BY and (opened is None or opened[0] == kind or opened[0] == "$"):
            opened = token
    return found


def _is_formula(span: Span, text: str) -> bool:
    inner = span.text.strip("$\\()[] \n")
    if not inner or (span.text[0] == "$" and text[span.end : span.end + 1].isdigit()):
        return False
    return len(_WORD.findall(_TEXT.sub("", span.text[:MAX_SENTENCE]))) < 2


def has_prose(text: str) -> bool:
    """Whether `text` holds running words besides formulas, units and function names."""
    pieces, end = [], 0
    for span in math_spans(text):
        pieces.append(text[end : span.start])
        end = span.end
    outside = " ".join([*pieces, text[end:]])
    words = [word.lower() for word in _WORD.findall(outside)]
    if any(not word.isascii() for word in words):
        return True
    words = [word for word in words if word not in _TERMS]
    return len(words) > 3 or any(word in _FUNCTION_WORDS for word in words)


def first_sentence(text: str) -> str:
    """`text` up to the end of its first sentence or paragraph; a full stop inside a formula does not
    count.
    """
    text = text[:MAX_SENTENCE]
    spans = [(span.start, span.end) for span in math_spans(text)]
    for end in _SENTENCE_END.finditer(text):
        if end.start() == 0 or any(a < end.start() < b for a, b in spans):
            continue
        before = text[: end.start()]
        if before.strip(" \t\r\n$*_"):
            return before
    return text


def last_sentence(text: str) -> str:
    """The last sentence or line of `text` that holds a letter or digit."""
    text = text[-MAX_SENTENCE:].rstrip()
    spans = [(span.start, span.end) for span in math_spans(text)]
    end = len(text)
    for stop in reversed(list(_SENTENCE_END.finditer(text))):
        if any(a < stop.start() < b for a, b in spans):
            continue
        if re.search(r"\w", text[stop.end() : end]):
            return text[stop.end() : end].strip()
        end = stop.start()
    return text[:end].strip()


def reduce(sentence: str) -> str | None:
    """The answer inside a sentence that states it; None where the sentence holds none."""
    sentence = sentence.strip()
    if not sentence:
        return None
    sentence = _ID_EST.split(_REMARK.sub("", sentence) or sentence)[-1].strip() or sentence
    if not has_prose(sentence):
        return sentence
    head = _SUBORDINATE.split(sentence, maxsplit=1)[0].strip()
    if head != sentence and _VALUE_FIRST.match(head) and not has_prose(head):
        return head
    spans = math_spans(sentence)
    if spans and spans[0].start == 0:
        return _spans_from(sentence, spans)
    sentence = sentence[-MAX_SENTENCE:]
    for end in reversed(deque((m.end() for m in _COPULA.finditer(sentence)), maxlen=12)):
        tail = sentence[end:].strip()
        if tail and not has_prose(tail) and re.search(r"[0-9\\$]", tail):
            return tail
    return None


def last_formula_or_number(text: str) -> str | None:
    """The last formula between math delimiters or the last number in prose, whichever stands further back."""
    text = text[-TAIL:]
    spans = math_spans(text)
    last = spans[-1] if spans else None
    start = last.end if last else 0
    number = None
    if last is None or re.search(r"[0-9]", text[start:]):
        rest = text[start:]
        plain = normalise(rest)
        for found in find_numbers(rest):
            number = plain[found.start : found.end] + _TRAILING.match(plain, found.end)[0]  # type: ignore[index]
    if number is not None:
        return number
    return _spans_from(text, spans[-1:]) if last else None


def _spans_from(text: str, spans: list[Span]) -> str:
    """The first of `spans` with the formulas that are joined to it and the unit behind."""
    end = spans[0].end
    for span in spans[1:]:
        if not _PAIR.fullmatch(text, end, span.start):
            break
        end = span.end
    tail = _TRAILING.match(text, end)
    return text[spans[0].start : tail.end() if tail else end]


def is_words(text: str) -> bool:
    """Whether a cleaned text is words only: no digits, commands or operators."""
    return bool(re.fullmatch(r"[A-Za-z][A-Za-z'’\- ]*", words_of(text)))
