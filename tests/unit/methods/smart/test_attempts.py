"""Attempts as rows, and how they are grouped."""

import json
import random
from dataclasses import replace

import pytest

from reasoner.errors import DataError
from reasoner.methods.smart.attempts import Attempt, by_problem, few_shot_table, one_each
from reasoner.methods.smart.records import SolutionRecord
from reasoner.records import Strategy, Verdict
from tests.unit.methods.smart.build import COT, POT, SUB, attempt, few_shot, problem


@pytest.mark.parametrize("strategy", [None, COT, SUB, POT])
def test_rows_survive_json(strategy: Strategy | None) -> None:
    made = attempt(problem(), strategy, "-", index=3, tried=(COT,), extracted="7")
    again = Attempt.from_row(json.loads(json.dumps(made.to_row())))
    assert again == made
    assert again.strategy is strategy and again.tried[0] is COT


def test_time_is_not_content() -> None:
    made = attempt(problem(), COT, "+")
    slow = replace(made, verdict=Verdict(made.verdict.outcome, made.verdict.reason, None, 4.2))
    assert slow.to_row() == made.to_row()


@pytest.mark.parametrize(
    "damage", [{"strategy": "guess"}, {"verdict": {"outcome": "maybe", "reason": "x"}}, {"tried": ["no"]}]
)
def test_a_foreign_row_is_named(damage: dict[str, object]) -> None:
    row = attempt(problem(), COT, "+").to_row() | damage
    with pytest.raises(DataError, match="is not one of ours"):
        Attempt.from_row(row)
    del row["finish"]
    row["strategy"], row["tried"], row["verdict"] = "cot", [], {"outcome": "correct", "reason": "x"}
    with pytest.raises(DataError, match="lacks 'finish'"):
        Attempt.from_row(row)


def test_a_response_without_a_strategy_is_never_right() -> None:
    assert not attempt(problem(), None, "+").right
    assert attempt(problem(), COT, "+").right
    assert not attempt(problem(), COT, "?").right and not attempt(problem(), COT, "?").scored


def test_only_a_completion_that_ended_is_complete() -> None:
    assert [attempt(problem(), COT, "+", finish=f).truncated for f in ("stop", "length", "error")] == [
        False,
        True,
        True,
    ]


def test_grouping_does_not_depend_on_order() -> None:
    made = [a for n in range(6) for a in few_shot(problem(n), "+-+")]
    shuffled = random.Random(1).sample(made, len(made))
    assert by_problem(shuffled) == by_problem(made)
    assert list(by_problem(shuffled)) == sorted({a.problem_id for a in made})
    assert [list(row) for row in few_shot_table(shuffled).values()] == [[COT, SUB, POT]] * 6


def test_doubles_and_nameless_few_shot_attempts_are_refused() -> None:
    owner = problem()
    double = [attempt(owner, COT, "+"), attempt(owner, COT, "-", index=1)]
    with pytest.raises(DataError, match="two with Chain of Thought"):
        few_shot_table(double)
    with pytest.raises(DataError, match="without a strategy"):
        few_shot_table([attempt(owner, None, "-")])
    with pytest.raises(DataError, match=r"base: .* 2 attempts"):
        one_each(double, "base")


def test_records_survive_json_and_are_hashed_whole() -> None:
    record = SolutionRecord("p", "q", POT, "answer = 1", (COT, SUB), ("a", "b"), "refine")
    again = SolutionRecord.from_row(json.loads(json.dumps(record.to_row())))
    assert again == record and again.id == record.id and again.strategy is POT
    changed = [
        replace(record, problem_id="o"),
        replace(record, question="r"),
        replace(record, strategy=SUB),
        replace(record, solution="answer = 2"),
        replace(record, tried=(SUB, COT)),
        replace(record, tried_solutions=("a", "c")),
        replace(record, kind="direct"),
    ]
    assert len({record.id, *(r.id for r in changed)}) == 8
