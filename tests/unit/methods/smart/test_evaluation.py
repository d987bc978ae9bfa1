"""Evaluation of a policy, comparison of two, regret, and the self-correction identity."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.errors import DataError
from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.correction import SelfCorrection, self_correction
from reasoner.methods.smart.evaluation import Comparison, Evaluation, compare, evaluate, evaluate_few_shot
from reasoner.methods.smart.regret import regret
from reasoner.records import Strategy, Verdict
from tests.unit.methods.smart.build import COT, POT, SUB, attempt, few_shot, problem

LETTERS = {"c": COT, "s": SUB, "p": POT, "n": None}


def policy(*codes: str, tried: tuple[Strategy, ...] = ()) -> list[Attempt]:
    """One attempt a question from codes like `c+`: strategy and mark."""
    return [attempt(problem(n), LETTERS[s], mark, tried=tried) for n, (s, mark) in enumerate(codes)]


def test_counts_by_hand() -> None:
    given = policy("c+", "c-", "p+", "p+", "p?", "n-", "n+", "s-")
    given[1] = replace(given[1], finish="length")
    found = evaluate(given)
    assert (found.accuracy.k, found.accuracy.n) == (3, 7), (
        "no name counts as wrong, unscored is in no denominator"
    )
    assert (found.responses, found.unscored, found.truncated, found.invalid_prefix) == (8, 1, 1, 2)
    assert found.invalid_prefix_rate == 2 / 8
    assert found.use == {"cot": 2, "sub": 1, "pot": 3}
    assert {name: (e.k, e.n) for name, e in found.by_strategy.items()} == {
        "cot": (1, 2),
        "sub": (0, 1),
        "pot": (2, 2),
    }
    assert found.collapse is None
    assert found.accuracy.low < 3 / 7 < found.accuracy.high


def test_reasons_of_programs() -> None:
    given = policy("p-", "p-", "p+", "c-", "n-")
    given[0] = replace(given[0], verdict=Verdict(given[0].verdict.outcome, "timeout"))
    found = evaluate(given)
    assert found.pot_reasons == {"different": 1, "equal": 1, "timeout": 1}
    assert found.reasons["none"] == {"different": 1}
    assert evaluate(policy("c+")).pot_reasons == {}


@pytest.mark.parametrize(
    ("codes", "collapse"),
    [
        (["p+"] * 95 + ["c+"] * 5, "pot"),
        (["p+"] * 94 + ["c+"] * 6, None),
        (["p+"] * 94 + ["c+"] * 5 + ["n-"], None),
        (["p+"] * 95 + ["n-"] * 5, "pot"),
        (["n-"] * 100, None),
        ([], None),
    ],
)
def test_collapse_alarm_at_95_percent_of_the_responses(codes: list[str], collapse: str | None) -> None:
    assert evaluate(policy(*codes)).collapse == collapse


def test_few_shot_is_measured_a_strategy_and_never_collapses() -> None:
    found = evaluate_few_shot([a for n in range(5) for a in few_shot(problem(n), "+-?")])
    assert list(found) == [COT, SUB, POT]
    assert [(e.accuracy.k, e.accuracy.n, e.collapse) for e in found.values()] == [
        (5, 5, None),
        (0, 5, None),
        (0, 0, None),
    ]
    assert found[POT].accuracy.value is None


def test_one_attempt_a_question() -> None:
    with pytest.raises(DataError, match="2 attempts where one is expected"):
        evaluate([attempt(problem(), COT, "+"), attempt(problem(), POT, "+", index=1)])


def test_comparison_counts_flips() -> None:
    other = policy("c+", "c+", "c-", "c-", "c-", "c-", "c-", "c?", "c+")
    mine = policy("c+", "n+", "p+", "p+", "p+", "p+", "p+", "p+", "p?")
    found = compare(mine, other, "base")
    assert (found.gained, found.lost, found.both_right, found.both_wrong) == (5, 1, 1, 0)
    assert (found.n, found.excluded, found.against, found.note) == (7, 2, "base", "")
    assert found.p == pytest.approx(2 * (1 + 6) / 2**6)
    back = compare(other, mine, "policy")
    assert (back.gained, back.lost, back.p) == (1, 5, found.p)


def test_no_p_for_other_problems_and_the_reason_is_given() -> None:
    found = compare(policy("c+", "c-", "c+"), policy("c-", "c-"), "base")
    assert found.p is None and found.note == "no p: other problems (2 shared of 3 and 2)"
    assert (found.n, found.gained, found.lost) == (2, 1, 0)
    assert compare([], policy("c+"), "base").note == "no p: other problems (0 shared of 0 and 1)"
    assert compare(policy("c?"), policy("c+"), "base").note == "no p: no problem is scored for both"


def test_the_same_answers_are_no_difference() -> None:
    assert compare(policy("c+", "c-"), policy("p+", "p-"), "x").p == 1.0


def test_regret_by_hand() -> None:
    base = [
        a
        for n, m in enumerate(["+--", "--+", "-++", "---", "+++", "--+", "-+?"])
        for a in few_shot(problem(n), m)
    ]
    chosen = policy("c+", "c-", "p-", "p+", "n-", "p?", "c+", "c+")
    found = regret(chosen, base)
    # usable: 0 good choice; 1 bad choice; 2 good choice, failed anyway; 3 beyond the oracle; 4 no name
    assert (found.n, found.excluded, found.oracle, found.solved, found.solved_beyond_oracle) == (
        5,
        3,
        4,
        2,
        1,
    )
    assert found.missed == 2 and found.regret == 2 / 5
    assert (found.undecided, found.chosen_good, found.best_single_good) == (3, 2, 2)
    assert found.random_good == pytest.approx(1 / 3 + 1 / 3 + 2 / 3)


def test_regret_without_few_shot_attempts_is_unknown() -> None:
    found = regret(policy("c+", "p+"), [])
    assert (found.n, found.excluded, found.regret) == (0, 2, None)


def test_self_correction_by_hand() -> None:
    first = policy("c+", "c+", "c-", "c-", "n-", "c?")
    second = [
        *policy("p+", "p-", "p+", "c-", tried=(COT,)),
        replace(attempt(problem(4), POT, "+"), turn=2),
        attempt(problem(5), POT, "+", tried=(COT,)),
    ]
    found = self_correction(first, second)
    assert (found.n, found.excluded) == (5, 1)
    assert (found.acc_t1.k, found.acc_t2.k, found.acc_t2_oracle.k) == (2, 3, 4)
    assert (found.i_to_c, found.c_to_i) == (2, 1)
    assert (found.repeated.k, found.repeated.n) == (1, 5), "an invalid turn 1 leaves nothing to repeat"
    assert found.delta == pytest.approx(1 / 5)
    assert found.retried == 6, "no attempt of this example has an answer"


def test_the_fallback_takes_the_second_answer_only_where_the_first_is_unusable() -> None:
    """Whether an answer is right does not count: the retry never looks at the gold."""
    first = [attempt(problem(n), COT, mark, extracted=text) for n, (mark, text) in enumerate(
        [("+", "1"), ("-", "2"), ("-", None), ("-", None), ("-", "5")]
    )]  # fmt: skip
    first[4] = replace(first[4], strategy=None)
    second = [attempt(problem(n), POT, mark, tried=(COT,)) for n, mark in enumerate("-++-+")]
    found = self_correction(first, second)
    assert (found.retried, found.acc_t2_fallback.k) == (3, 3)
    assert (found.acc_t2.k, found.acc_t2_oracle.k) == (3, 4)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["c+", "c-", "n-", "c?"]), st.sampled_from(["p+", "p-", "n-", "p?"])),
        max_size=20,
    )
)
def test_the_identity_of_the_deltas(codes: list[tuple[str, str]]) -> None:
    found = self_correction(policy(*(a for a, _ in codes)), policy(*(b for _, b in codes), tried=(COT,)))
    assert found.delta == pytest.approx(found.delta_i_to_c - found.delta_c_to_i)
    assert found.acc_t2.k - found.acc_t1.k == found.i_to_c - found.c_to_i
    assert found.acc_t2_oracle.k >= max(found.acc_t1.k, found.acc_t2.k)
    assert found.n + found.excluded == len(codes)


def test_turn_2_is_run_for_all() -> None:
    with pytest.raises(DataError, match="Run turn 2 for every problem"):
        self_correction(policy("c+", "c-"), policy("c+"))


def test_rows_survive_json() -> None:
    mine, other = policy("c+", "p-", "n-"), policy("c-", "p-", "s+")
    for made, kind in [
        (evaluate(mine), Evaluation),
        (compare(mine, other, "x"), Comparison),
        (self_correction(mine, other), SelfCorrection),
    ]:
        assert kind.from_row(json.loads(json.dumps(made.to_row()))) == made  # type: ignore[attr-defined]
