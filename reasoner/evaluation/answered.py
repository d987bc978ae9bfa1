"""Judged answers of one model to the problems of one or more data sets, as `compare` takes them.

A row is one judged sample: `problem_id`, `dataset`, `question`, `gold`, `index`, `answer` and `outcome` (correct,
incorrect or unscored). Rows of others may say `id` for the problem, `correct` (true, false or null) for the outcome,
or hold a `verdict`, as attempts do; without an id the question counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reasoner.errors import DataError
from reasoner.ids import content_hash
from reasoner.records import Outcome

UNNAMED = ""
"""The data set of rows that name none."""


@dataclass(slots=True)
class Answers:
    """One problem: its text and the scores of its scored samples (1 correct, 0 incorrect)."""

    problem_id: str
    question: str = ""
    gold: str = ""
    scores: list[float] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)
    unscored: int = 0

    @property
    def content(self) -> str:
        """What makes it the same problem elsewhere, under whatever name the data set goes there; empty if unknown."""
        if not self.question:
            return ""
        return content_hash([" ".join(self.question.casefold().split()), self.gold], 16)

    @property
    def mean(self) -> float:
        return sum(self.scores) / len(self.scores)


@dataclass(frozen=True, slots=True)
class Answered:
    """One model's answers by data set and problem id."""

    name: str
    sets: Mapping[str, Mapping[str, Answers]]


def answered_from_rows(name: str, rows: Iterable[Mapping[str, Any]], dataset: str = UNNAMED) -> Answered:
    """Gather rows; `dataset` is that of rows that name none. Raises DataError, with the row, where one is unusable."""
    sets: dict[str, dict[str, Answers]] = {}
    seen: set[tuple[str, str, Any]] = set()
    for number, row in enumerate(rows, 1):
        try:
            add_row(sets, seen, row, dataset)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{name}: row {number}: {_words(error)}") from None
    if not sets:
        raise DataError(f"{name}: holds no rows")
    return Answered(name, sets)


def add_row(
    sets: dict[str, dict[str, Answers]], seen: set[tuple[str, str, Any]], row: Mapping[str, Any], dataset: str
) -> None:
    """Add one row. Raises KeyError for a field that is missing, ValueError for one that cannot be."""
    question = str(row.get("question") or "")
    given = row.get("problem_id", row.get("id"))
    if given is None and not question:
        raise KeyError("problem_id")
    problem_id = str(given) if given is not None else content_hash(question, 16)
    name = str(row.get("dataset") or dataset)
    index = row.get("index", 0)
    if (name, problem_id, index) in seen:
        raise ValueError(f"problem {problem_id} has sample {index} twice; number the samples in `index`")
    seen.add((name, problem_id, index))
    gold, extracted = str(row.get("gold") or ""), _answer(row)
    entry = sets.setdefault(name, {}).setdefault(problem_id, Answers(problem_id, question, gold))
    score = score_of(row)
    if score is None:
        entry.unscored += 1
    else:
        entry.scores.append(score)
        entry.answers.append(extracted)


def score_of(row: Mapping[str, Any]) -> float | None:
    """1, 0 or None (unscored). An attempt that names no strategy counts as wrong."""
    verdict = row.get("verdict")
    if isinstance(verdict, Mapping):
        row = {"outcome": verdict["outcome"] if row.get("strategy", "") is not None else Outcome.INCORRECT}
    if "outcome" in row:
        outcome = Outcome(row["outcome"])
        return None if outcome is Outcome.UNSCORED else float(outcome is Outcome.CORRECT)
    correct = row["correct"]
    if correct is None or isinstance(correct, bool):
        return None if correct is None else float(correct)
    raise ValueError(f"`correct` is true, false or null, not {correct!r}")


def _answer(row: Mapping[str, Any]) -> str | None:
    verdict = row.get("verdict")
    found = verdict.get("extracted") if isinstance(verdict, Mapping) else row.get("answer")
    return None if found is None else str(found)


def _words(error: Exception) -> str:
    if isinstance(error, KeyError):
        field_name = "outcome (or correct)" if error.args[0] == "correct" else error.args[0]
        return f"has no {field_name}; a row needs problem_id (or id, or question) and outcome (or correct)"
    return str(error)
