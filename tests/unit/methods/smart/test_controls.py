"""The control sets: rejection sampling with one strategy, and shuffled labels."""

import random
from collections import Counter

import pytest

from reasoner.config.smart import Epoch1Config
from reasoner.errors import DataError
from reasoner.methods.smart import epoch1
from reasoner.methods.smart.controls import (
    as_chain_of_thought,
    given_records,
    rft_records,
    shuffled_labels,
)
from reasoner.records import Problem
from reasoner.verifiers.solutions import Answer, verify_solutions
from tests.unit.methods.smart.build import COT, POT, attempt, few_shot, problem


def test_rft_keeps_distinct_correct_solutions_of_one_strategy() -> None:
    owner = problem()
    attempts = [
        attempt(owner, POT, "+", index=0, solution="answer = 1"),
        attempt(owner, POT, "+", index=1, solution="answer  = 1"),
        attempt(owner, POT, "-", index=2, solution="answer = 2"),
        attempt(owner, POT, "+", index=3, solution="answer = 1 + 0", finish="length"),
        attempt(owner, POT, "+", index=4, solution="answer = 0 + 1"),
        attempt(owner, POT, "+", index=5, solution="answer = 2 - 1"),
        attempt(owner, POT, "?", index=6, solution="answer = 3"),
        attempt(owner, COT, "+", index=7),
        attempt(owner, POT, "+", index=8, tried=(COT,), solution="second turn"),
    ]
    chosen = rft_records([owner], attempts[::-1], POT, 0, keep=2)
    assert {r.solution for r in chosen.records} == {"answer = 1", "answer = 0 + 1"}
    assert all(r.kind == "direct" and r.strategy is POT for r in chosen.records)
    assert chosen.counts == {"attempts": 7, "correct": 5, "truncated": 1, "dropped_max": 0, "records": 2}
    assert len(rft_records([owner], attempts, POT, 0, keep=2, max_records=1).records) == 1


def test_rft_refuses_unknown_problems() -> None:
    with pytest.raises(DataError, match="not among"):
        rft_records([problem(1)], few_shot(problem(2), "+++"), POT, 0)


def test_shuffled_labels_keep_everything_but_the_names() -> None:
    problems = [problem(n) for n in range(40)]
    attempts = [a for n, p in enumerate(problems) for a in few_shot(p, ["+--", "--+", "++-"][n % 3])]
    records = epoch1.records(problems, attempts, Epoch1Config(), 0).records
    control = shuffled_labels(records, 0)
    assert Counter(r.strategy for r in control) == Counter(r.strategy for r in records)
    assert [(r.problem_id, r.solution, r.tried, r.kind) for r in control] == [
        (r.problem_id, r.solution, r.tried, r.kind) for r in records
    ]
    moved = sum(a.strategy is not b.strategy for a, b in zip(records, control, strict=True))
    assert moved > len(records) / 3
    assert shuffled_labels(records, 1) != control
    again = random.Random(3).sample(records, len(records))
    assert {r.id for r in shuffled_labels(again, 0)} == {r.id for r in control}
    assert shuffled_labels([], 0) == ()


@pytest.mark.parametrize(
    ("solution", "gold", "wanted"),
    [
        ("He has 3 * 4 = <<3*4=12>>12 pens.\n#### 12", "12", "He has 3 * 4 = 12 pens.\nThe answer is 12."),
        ("First 2.\n\nThen 5.\n#### 5\nThe answer is: 5", "5", "First 2.\nThen 5.\nThe answer is 5."),
        ("3 + 4 = 7. The answer is 7.", "7", "3 + 4 = 7.\nThe answer is 7."),
        ("One < two, and 3 << 4.", "4", "One < two, and 3 << 4.\nThe answer is 4."),
    ],
)
def test_given_solutions_take_our_form(solution: str, gold: str, wanted: str) -> None:
    text = as_chain_of_thought(solution, gold)
    assert text == wanted
    (verdict,) = verify_solutions([Answer(COT, text, gold)])
    assert verdict.correct


def test_given_solutions_are_counted_and_their_absence_is_told() -> None:
    problems = [
        Problem.make(f"Q{n}?", str(n), "toy", solution="It is so." if n % 3 else "") for n in range(9)
    ]
    chosen = given_records(problems, 0, max_records=4)
    assert chosen.counts == {"problems": 9, "without_solution": 3, "dropped_max": 2, "records": 4}
    assert {(r.strategy, r.kind, r.tried) for r in chosen.records} == {(COT, "direct", ())}
    with pytest.raises(DataError, match="of toy comes with a solution"):
        given_records(problems[::3], 0)


def test_shuffled_labels_keep_the_counts_of_repeated_records() -> None:
    problems = [problem(n) for n in range(12)]
    attempts = [a for n, p in enumerate(problems) for a in few_shot(p, "+--" if n % 4 else "--+")]
    records = epoch1.records(problems, attempts, Epoch1Config(rarity=1), 0).records
    assert len({r.id for r in records}) < len(records)
    assert Counter(r.strategy for r in shuffled_labels(records, 0)) == Counter(r.strategy for r in records)
