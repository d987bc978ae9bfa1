"""Finds training questions that are also evaluation questions.

Covers exact matches on the normalised text (case, punctuation and white space ignored) of a question and of
the original question that it rephrases. Does not cover near duplicates: `_keys` is where n-gram or MinHash
keys would be added. The normalised text drops signs, so two questions that differ in a sign only count as
one: for a contamination check that is the safe side.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reasoner.errors import DataError
from reasoner.ids import content_hash
from reasoner.records import Problem, normalised_text


@dataclass(frozen=True, slots=True)
class Overlap:
    """A training problem, and an evaluation problem that is the same question."""

    train: Problem
    evaluation: Problem
    set_name: str
    """Name of the evaluation set."""


def find(train: Iterable[Problem], evaluation: Mapping[str, Sequence[Problem]]) -> list[Overlap]:
    """One overlap a training problem and evaluation set that has it."""
    known: dict[str, dict[str, Problem]] = {
        name: {key: problem for problem in problems for key in _keys(problem)}
        for name, problems in evaluation.items()
    }
    overlaps = []
    for problem in train:
        keys = _keys(problem)
        for name, by_key in known.items():
            hit = next((by_key[key] for key in keys if key in by_key), None)
            if hit is not None:
                overlaps.append(Overlap(problem, hit, name))
    return overlaps


def check(train: Iterable[Problem], evaluation: Mapping[str, Sequence[Problem]]) -> None:
    """Raises DataError where a training question, or its original, is in an evaluation set."""
    overlaps = find(train, evaluation)
    if not overlaps:
        return
    pairs = Counter((item.train.dataset, item.set_name) for item in overlaps)
    sets = ", ".join(f"{count} of {source} in {name}" for (source, name), count in sorted(pairs.items()))
    first = overlaps[0]
    raise DataError(
        f"training questions are also evaluation questions: {sets}. The first, in {first.train.dataset} and "
        f"{first.set_name}: {first.train.question[:120]!r}. data.overlap=drop leaves them out of training"
    )


def without(train: Iterable[Problem], overlaps: Iterable[Overlap]) -> list[Problem]:
    """The training problems that are in no overlap."""
    found = {item.train.id for item in overlaps}
    return [problem for problem in train if problem.id not in found]


def _keys(problem: Problem) -> tuple[str, ...]:
    # The same hash as Problem.group, so that a question meets the original of another.
    question = content_hash(normalised_text(problem.question), 16)
    return (question,) if question == problem.group else (question, problem.group)
