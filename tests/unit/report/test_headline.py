"""The headline table: which test is against what, and what it does when a test cannot be made."""

import pytest

from reasoner.methods.smart.attempts import Attempt
from reasoner.report.data import HeadlineTable
from reasoner.report.headline import headline
from reasoner.statistics import holm, mcnemar_exact
from tests.unit.methods.smart.build import COT, POT, attempt, few_shot, problem

N = 40
BASE = [a for n in range(N) for a in few_shot(problem(n), "+--" if n < 8 else "--+" if n < 24 else "---")]


def solving(count: int, strategy: object = POT, size: int = N) -> list[Attempt]:
    """A policy that solves the last `count` of `size` questions."""
    return [attempt(problem(n), strategy, "+" if n >= size - count else "-") for n in range(size)]  # type: ignore[arg-type]


def test_rows_and_tests() -> None:
    table = headline(
        "toy", BASE, [("epoch 1", solving(20)), ("epoch 2", solving(34))], controls=[("RFT", solving(30))]
    )
    assert [(row.kind, row.accuracy.k) for row in table.rows] == [
        ("few_shot", 8),
        ("few_shot", 0),
        ("few_shot", 16),
        ("oracle", 24),
        ("policy", 20),
        ("policy", 34),
        ("control", 30),
    ]
    assert table.best_single == "base few-shot Program of Thought"
    first, second, control = table.rows[4:]
    assert first.best is not None and first.best.against == table.best_single and first.previous is None
    # epoch 1 solves 20..39, the program 8..23: 16 gained, 12 lost
    assert (first.best.gained, first.best.lost, first.best.p) == (16, 12, mcnemar_exact(12, 16))
    assert second.previous is not None and (second.previous.gained, second.previous.lost) == (14, 0)
    assert second.previous.against == "epoch 1"
    assert control.previous is not None and control.previous.against == "epoch 2"
    raw = [c.p for row in table.rows for c in (row.best, row.previous) if c]
    adjusted = [c.p_holm for row in table.rows for c in (row.best, row.previous) if c]
    assert len(raw) == 5 and adjusted == pytest.approx(holm(raw))  # type: ignore[arg-type]


def test_a_single_test_is_not_adjusted() -> None:
    row = headline("toy", BASE, [("epoch 1", solving(20))]).rows[-1]
    assert row.best is not None and row.best.p is not None and row.best.p_holm is None


def test_a_tie_for_the_best_goes_to_the_first_strategy() -> None:
    base = [a for n in range(4) for a in few_shot(problem(n), "++-")]
    assert headline("toy", base, []).best_single == "base few-shot Chain of Thought"


def test_other_problems_give_no_p() -> None:
    table = headline("toy", BASE, [("epoch 1", solving(20, size=30))])
    best = table.rows[-1].best
    assert best is not None and best.p is None and "other problems" in best.note


def test_without_few_shot_attempts_it_says_so() -> None:
    table = headline("toy", [], [("epoch 1", solving(20, COT)), ("epoch 2", solving(30, COT))])
    assert table.best_single is None and table.rows[0].best is None and table.rows[1].previous is not None
    assert "nothing is compared with the base" in table.notes[0]


def test_incomplete_few_shot_attempts_are_noted() -> None:
    base = [*BASE, attempt(problem(N), COT, "+")]
    assert "leaves out 1 question" in headline("toy", base, []).notes[0]


def test_tables_survive_json() -> None:
    table = headline("toy", BASE, [("epoch 1", solving(20)), ("epoch 2", solving(34))])
    assert HeadlineTable.model_validate_json(table.model_dump_json()) == table


def test_controls_are_compared_with_the_last_policy_and_not_with_each_other() -> None:
    controls = [("RFT", solving(30)), ("shuffled labels", solving(25))]
    rows = headline("toy", BASE, [("epoch 1", solving(20))], controls=controls).rows
    assert [row.previous.against for row in rows if row.kind == "control" and row.previous] == [
        "epoch 1",
        "epoch 1",
    ]
    (alone,) = headline("toy", [], [], controls=controls[:1]).rows
    assert alone.best is None and alone.previous is None
