"""Verdicts on mathematical answers: a whole response against a gold answer in LaTeX or plain text (METHODS
1.1.2).

`judge` decides one row in this process and may take long or fail on hostile input; pool.verify_math judges
many rows in killable workers. An unreadable gold is `unscored`.
"""

import re
from dataclasses import dataclass

from reasoner.records import Outcome, Verdict
from reasoner.verifiers import extraction
from reasoner.verifiers.choices import choice_in_prose, gold_choice, hedged, stated_choice
from reasoner.verifiers.equivalence import equivalent
from reasoner.verifiers.latex import clean, unescape, words_of
from reasoner.verifiers.numbers import find_numbers, normalise
from reasoner.verifiers.policy import MathPolicy
from reasoner.verifiers.statement import (
    MAX_SENTENCE,
    first_sentence,
    has_prose,
    is_words,
    last_formula_or_number,
    last_sentence,
    math_spans,
    reduce,
)

VERSION = 2
"""Part of every stage key that holds verdicts of mathematics."""

MAX_SHOWN = 300
_LABEL = re.compile(r"^[\s*#>-]*(?:[A-Za-z][A-Za-z ]{0,40}:)\s+(?=\S)")


@dataclass(frozen=True, slots=True)
class MathItem:
    """One answer to judge: the gold answer and the model's response, each as text."""

    gold: str
    prediction: str


def judge(item: MathItem, policy: MathPolicy) -> Verdict:
    """The verdict on one row."""
    gold = gold_answer(item.gold, policy)
    if gold is None:
        return Verdict(Outcome.UNSCORED, "gold_unreadable")
    if choice := gold_choice(gold):
        return _judge_choice(choice, item.prediction, policy)
    answer = find_answer(item.prediction, policy, words=is_words(words_of(clean(gold))))
    if answer is None:
        return Verdict(Outcome.INCORRECT, "unparsed")
    same, reason = equivalent(gold, answer, policy)
    if reason in ("gold_unreadable", "gold_unparsed"):
        return Verdict(Outcome.UNSCORED, "gold_unreadable", answer[:MAX_SHOWN])
    return Verdict(Outcome.CORRECT if same else Outcome.INCORRECT, reason, answer[:MAX_SHOWN])


def gold_answer(gold: str, policy: MathPolicy) -> str | None:
    """The answer that a gold cell holds: the cell itself, or what its worked solution boxes or marks. None if
    empty.
    """
    gold = unescape(gold) if policy.overescaped else gold
    boxed = extraction.box_group(gold)
    if boxed:
        answer: str | None = ", ".join(boxed)
    elif has_prose(gold) or "####" in gold:
        answer = find_answer(gold, policy.model_copy(update={"box_required": False}), words=True) or gold
    else:
        answer = gold
    return answer if answer and clean(words_of(answer), policy.overescaped) else None


def find_answer(response: str, policy: MathPolicy, *, words: bool = False) -> str | None:
    """The answer that a response states, or None. With `words` an answer may be words alone.

    In this order: the last boxes, an `<answer>` tag, the last marker that an answer follows, a response that
    is nothing but an answer, the last formula or number.
    """
    text = _part(response, policy)
    if not text.strip():
        return None
    boxed = extraction.box_group(text)
    if boxed:
        later = extraction.restated(text[extraction.boxes(text)[-1].end :])
        if later and (again := _stated(later, words)):
            return again
        return ", ".join(boxed) if policy.boxes == "group" else boxed[-1]
    if policy.box_required or extraction.unclosed_box(text):
        return None
    tag = extraction.answer_tag(text)
    if tag is not None:
        return (reduce(tag) or _stated(tag, words)) if tag else None
    for statement in extraction.answer_texts(text):
        if answer := _stated(statement, words):
            later = extraction.restated(statement[len(first_sentence(statement)) :])
            return (_stated(later, words) if later else None) or answer
    if not has_prose(text):
        return _bare_answer(text)
    if policy.stated == "marked":
        return None
    if words:
        return _words_in(text)
    return _unmarked(text)


def _part(response: str, policy: MathPolicy) -> str:
    text = extraction.response_part(response, policy.run_on == "cut")
    return unescape(text) if policy.overescaped else text


def _stated(statement: str, words: bool) -> str | None:
    """The answer at the start of a statement; None where it holds no value and words do not count."""
    sentence = first_sentence(statement)
    answer = reduce(sentence)
    if answer is not None and (words or re.search(r"[0-9\\=<>]|\b[A-Za-z]\b", answer)):
        return answer
    if words and answer is None and len(sentence.split()) <= 8:
        return sentence
    if spans := math_spans(sentence):
        return spans[0].text
    number = next(find_numbers(sentence), None)
    return normalise(sentence)[number.start : number.end] if number else None


def _bare_answer(text: str) -> str:
    """A response without prose: the whole of it, or its last line where that stands on its own."""
    lines = [line for line in text.strip().split("\n") if line.strip()]
    last = lines[-1]
    whole = (
        len(lines) == 1
        or re.search(r"\\begin|^\s*(?:\\\]|\\\)|\$+|\})", last)
        or last.count("{") != last.count("}")
    )
    return _LABEL.sub("", text.strip() if whole else last)


def _unmarked(text: str) -> str | None:
    """The answer of running text that marks none."""
    return reduce(_LABEL.sub("", last_sentence(text))) or last_formula_or_number(text)


def _words_in(text: str) -> str | None:
    """The answer in words that running text ends with: in bold, behind the last "is", or all of a short
    text.
    """
    if bold := re.findall(r"\*\*([^*]{1,60})\*\*", text):
        return str(bold[-1])
    spans = math_spans(text[-MAX_SENTENCE:])
    if spans and is_words(words_of(clean(spans[-1].text))):
        return spans[-1].text
    sentence = re.split(r",?\s*\b(?:because|since|as)\b", last_sentence(text))[0]
    tail = re.split(r"\b(?:is|are|was|were|be)\b", sentence)[-1].strip()
    return tail if 0 < len(tail.split()) <= 6 else None


def _judge_choice(choice: tuple[str, str], response: str, policy: MathPolicy) -> Verdict:
    letter, option = choice
    found = _find_choice(response, policy)
    if found is None:
        answer = find_answer(response, policy, words=True)
        if answer is None:
            return Verdict(Outcome.INCORRECT, "unparsed")
        same = bool(option) and words_of(clean(answer)).casefold() == option.casefold()
        return Verdict(Outcome.CORRECT if same else Outcome.INCORRECT, "choice", answer[:MAX_SHOWN])
    return Verdict(Outcome.CORRECT if found == letter else Outcome.INCORRECT, "choice", found)


def _find_choice(response: str, policy: MathPolicy) -> str | None:
    text = _part(response, policy)
    boxed = extraction.box_group(text)
    if boxed:
        return stated_choice(", ".join(boxed))
    if extraction.unclosed_box(text) or policy.box_required:
        return None
    tag = extraction.answer_tag(text)
    if tag is not None:
        return stated_choice(tag)
    for statement in extraction.answer_texts(text):
        sentence = first_sentence(statement)
        if letter := stated_choice(sentence):
            return letter
        if hedged(sentence):
            return None
    spans = math_spans(text[-MAX_SENTENCE:])
    return choice_in_prose(text) or (stated_choice(spans[-1].text) if spans else None)
