"""What few-shot attempts say before training, counted by hand."""

import json
import random

import pytest

from reasoner.errors import DataError
from reasoner.methods.smart.analysis import Analysis, analyse
from reasoner.methods.smart.attempts import Attempt
from tests.unit.methods.smart.build import COT, POT, SUB, attempt, few_shot, problem


def attempts(*marks: str) -> list[Attempt]:
    return [a for n, m in enumerate(marks) for a in few_shot(problem(n), m)]


def test_counts_by_hand() -> None:
    found = analyse(attempts("+++", "+--", "--+", "--+", "-++", "---", "--+", "+-+"))
    assert found.problems == 8 and found.incomplete == 0
    assert found.histogram == {0: 1, 1: 4, 2: 2, 3: 1}
    assert {name: (e.k, e.n) for name, e in found.accuracy.items()} == {
        "cot": (3, 8),
        "sub": (2, 8),
        "pot": (6, 8),
    }
    assert (found.oracle_any.k, found.oracle_any.n, found.best_single) == (7, 8, "pot")
    assert found.headroom == pytest.approx(1 / 8)
    overlap = {(o.first, o.second): o for o in found.overlaps}
    cot_pot = overlap["cot", "pot"]
    assert (cot_pot.both, cot_pot.only_first, cot_pot.only_second, cot_pot.neither) == (2, 1, 4, 1)
    assert cot_pot.agreement == pytest.approx(3 / 8)
    assert set(overlap) == {("cot", "sub"), ("cot", "pot"), ("sub", "pot")}
    assert "0.125" in found.sentence and "Program of Thought" in found.sentence


def test_small_headroom_says_that_smart_cannot_help() -> None:
    found = analyse(attempts("--+", "+-+", "---", "-++"))
    assert found.headroom == 0 and "SMART cannot help, whatever the training" in found.sentence
    assert "cannot help" not in analyse(attempts("--+", "+--", "---", "-++")).sentence
    assert "cannot help" in analyse(attempts("--+", "+--", "---", "-++"), small=0.3).sentence


def test_the_oracle_and_the_best_strategy_are_measured_on_the_same_questions() -> None:
    """A question with an attempt unscored or missing would raise one figure and not the other."""
    found = analyse([*attempts("+--", "--+", "++?", "?+-"), attempt(problem(9), SUB, "+")])
    assert (found.problems, found.incomplete, found.unscored) == (2, 3, 2)
    assert found.accuracy["sub"].n == 2 and found.oracle_any.k == 2


def test_vote() -> None:
    def row(number: int, *answers: tuple[str, str | None]) -> list[Attempt]:
        owner = problem(number)
        return [attempt(owner, s, m, extracted=a) for s, (m, a) in zip((COT, SUB, POT), answers, strict=True)]

    found = analyse(
        row(0, ("-", "4"), ("-", "4"), ("+", "1"))  # outvoted
        + row(1, ("+", "2"), ("+", "2"), ("-", "9"))  # right
        + row(2, ("+", "3"), ("-", "8"), ("-", "7"))  # a tie goes to the first
        + row(3, ("-", None), ("-", None), ("+", "4"))  # no answer is no vote
    )
    assert (found.vote.k, found.vote.n) == (3, 4)


def test_order_does_not_matter_and_rows_survive_json() -> None:
    given = attempts("+++", "+--", "--+", "?-+")
    found = analyse(given)
    random.Random(0).shuffle(given)
    assert analyse(given) == found
    assert Analysis.from_row(json.loads(json.dumps(found.to_row()))) == found


def test_nothing_can_be_said_of_nothing() -> None:
    for empty in (analyse([]), analyse(attempts("?++"))):
        assert empty.problems == 0 and empty.best_single is None and empty.headroom is None
        assert "nothing can be said" in empty.sentence


def test_doubles_are_refused() -> None:
    with pytest.raises(DataError):
        analyse(attempts("+++") + attempts("---"))
