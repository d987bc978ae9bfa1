"""The headline table: which test is against what, and what it does when a test cannot be made."""

import pytest

from reasoner.methods.smart.attempts import Attempt
from reasoner.records import Strategy
from reasoner.report.data import HeadlineTable
from reasoner.report.headline import Answers, headline, random_choice
from reasoner.report.words import sentences
from reasoner.statistics import holm, mcnemar_exact
from tests.unit.methods.smart.build import COT, POT, attempt, few_shot, problem

N = 40
BASE = [a for n in range(N) for a in few_shot(problem(n), "+--" if n < 8 else "--+" if n < 24 else "---")]


def solving(count: int, strategy: object = POT, size: int = N) -> list[Attempt]:
    """A policy that solves the last `count` of `size` questions."""
    return [attempt(problem(n), strategy, "+" if n >= size - count else "-") for n in range(size)]  # type: ignore[arg-type]


def test_rows_and_tests() -> None:
    table = headline(
        "toy",
        BASE,
        [
            Answers("epoch 1", solving(20)),
            Answers("epoch 2", solving(34)),
            Answers("RFT", solving(30), "control"),
        ],
    )
    assert [(row.kind, row.accuracy.k) for row in table.rows] == [
        ("few_shot", 8),
        ("few_shot", 0),
        ("few_shot", 16),
        ("random", sum(a.right for a in random_choice(BASE))),
        ("vote", 0),
        ("oracle", 24),
        ("policy", 20),
        ("policy", 34),
        ("control", 30),
    ]
    assert table.best_single == "base few-shot Program of Thought"
    first, second, control = table.rows[6:]
    assert first.best is not None and first.best.against == table.best_single and first.previous is None
    # epoch 1 solves 20..39, the program 8..23: 16 gained, 12 lost
    assert (first.best.gained, first.best.lost, first.best.p) == (16, 12, mcnemar_exact(12, 16))
    assert second.previous is not None and (second.previous.gained, second.previous.lost) == (14, 0)
    assert second.previous.against == "epoch 1"
    (against,) = second.controls
    assert (control.previous, control.controls, against.against) == (None, (), "RFT")
    raw = [c.p for row in table.rows for c in (row.best, row.previous, *row.controls) if c]
    adjusted = [c.p_holm for row in table.rows for c in (row.best, row.previous, *row.controls) if c]
    assert len(raw) == 5 and adjusted == pytest.approx(holm(raw))  # type: ignore[arg-type]


def test_a_single_test_is_not_adjusted() -> None:
    row = headline("toy", BASE, [Answers("epoch 1", solving(20))]).rows[-1]
    assert row.best is not None and row.best.p is not None and row.best.p_holm is None


def test_a_tie_for_the_best_goes_to_the_first_strategy() -> None:
    base = [a for n in range(4) for a in few_shot(problem(n), "++-")]
    assert headline("toy", base, []).best_single == "base few-shot Chain of Thought"


def test_other_problems_give_no_p() -> None:
    table = headline("toy", BASE, [Answers("epoch 1", solving(20, size=30))])
    best = table.rows[-1].best
    assert best is not None and best.p is None and "other problems" in best.note


def test_without_few_shot_attempts_it_says_so() -> None:
    table = headline("toy", [], [Answers("epoch 1", solving(20, COT)), Answers("epoch 2", solving(30, COT))])
    assert table.best_single is None and table.rows[0].best is None and table.rows[1].previous is not None
    assert "nothing is compared with the base" in table.notes[0]


def test_incomplete_few_shot_attempts_are_noted() -> None:
    base = [*BASE, attempt(problem(N), COT, "+")]
    assert "leaves out 1 question" in headline("toy", base, []).notes[0]


def test_tables_survive_json() -> None:
    table = headline("toy", BASE, [Answers("epoch 1", solving(20)), Answers("epoch 2", solving(34))])
    assert HeadlineTable.model_validate_json(table.model_dump_json()) == table


def test_the_last_policy_is_compared_with_controls_and_they_not_with_each_other() -> None:
    controls = [
        Answers("RFT", solving(30), "control"),
        Answers("shuffled labels", solving(25), "control"),
    ]
    rows = headline("toy", BASE, [Answers("epoch 1", solving(20)), *controls]).rows
    assert [c.against for row in rows for c in row.controls] == ["RFT", "shuffled labels"]
    (alone,) = headline("toy", [], controls[:1]).rows
    assert alone.best is None and alone.previous is None


def test_a_random_strategy_is_an_even_draw_that_no_order_changes() -> None:
    base = [a for n in range(300) for a in few_shot(problem(n), "+--")]
    drawn = random_choice(base)
    assert random_choice(base[::-1]) == drawn and len(drawn) == 300
    assert all(70 < sum(a.strategy is s for a in drawn) < 130 for s in Strategy)


def test_the_vote_counts_answers_and_a_tie_goes_to_the_first() -> None:
    answers = {0: ("7", "7", "8"), 1: ("1", "2", "3"), 2: ("4", "5", "5")}
    base = [
        attempt(problem(n), s, mark, extracted=text)
        for n, texts in answers.items()
        for s, mark, text in zip(Strategy, "++-" if n == 0 else "-+-", texts, strict=True)
    ]
    vote = next(row for row in headline("toy", base, []).rows if row.kind == "vote")
    assert (vote.accuracy.k, vote.accuracy.n) == (2, 3)


def test_the_last_policy_and_the_variants_are_tested_against_each_control() -> None:
    controls = [Answers("rft", solving(20), "control"), Answers("shuffled", solving(34), "control")]
    answered = [
        Answers("epoch 1", solving(20)), Answers("epoch 2", solving(34)), Answers("rare", solving(40), "variant"),
        *controls,
    ]  # fmt: skip
    rows = {row.label: row for row in headline("toy", BASE, answered).rows}
    assert [c.against for c in rows["rare"].controls] == ["rft", "shuffled"]
    assert [(c.gained, c.lost) for c in rows["epoch 2"].controls] == [(14, 0), (0, 0)]
    assert rows["epoch 1"].controls == rows["rft"].controls == ()
    table = headline("toy", BASE, answered)
    said = " ".join(sentences(table))
    assert "Better than rft at p below 0.05, adjusted: epoch 2 (+14 −0" in said and "rare (+20 −0" in said
    assert "Better than shuffled at p below 0.05, adjusted: none of the 2 trainings" in said
    tests = [c.p for row in table.rows for c in (row.best, row.previous, *row.controls) if c]
    adjusted = [c.p_holm for row in table.rows for c in (row.best, row.previous, *row.controls) if c]
    assert adjusted == pytest.approx(holm(tests))  # type: ignore[arg-type]


def test_turn_two_and_forced_strategies_are_measured_where_they_are_given() -> None:
    again = [
        attempt(problem(n), COT if n < 10 else POT, "+" if n < 5 else "-", tried=(POT,)) for n in range(N)
    ]
    each = [a for n in range(N) for a in few_shot(problem(n), "+--" if n % 2 else "--+")]
    row = headline("toy", BASE, [Answers("epoch 1", solving(20), turn2=again, each=each)]).rows[-1]
    assert row.correction is not None and (row.correction.i_to_c, row.correction.c_to_i) == (5, 20)
    assert (row.correction.acc_t2.k, row.correction.acc_t2_oracle.k, row.correction.repeated.k) == (5, 25, 30)
    assert row.turn2 is not None and row.turn2.use == {"cot": 10, "sub": 0, "pot": 30}
    assert row.turn2.by_strategy["cot"].k == 5
    assert row.forced is not None and row.forced.oracle_any.k == N
    assert row.own_regret is not None and (row.own_regret.missed, row.own_regret.undecided) == (20, N)
    plain = headline("toy", BASE, [Answers("epoch 1", solving(20))]).rows[-1]
    assert (plain.correction, plain.turn2, plain.forced, plain.own_regret) == (None, None, None, None)
