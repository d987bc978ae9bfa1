"""Epoch 1: the exact records for every combination of correct and wrong strategies, under every flag."""

import itertools
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.config.smart import Epoch1Config
from reasoner.errors import DataError
from reasoner.ids import content_hash
from reasoner.methods.smart.epoch1 import records
from reasoner.methods.smart.selection import Selection
from reasoner.records import Problem
from tests.unit.methods.smart.build import COT, POT, SUB, attempt, few_shot, problem, shapes

# (cot, sub, pot) -> direct targets, refine pairs (tried, target); written out by hand from METHODS 2.5.
TABLE = {
    "---": ("", ""),
    "+--": ("cot", "sub>cot pot>cot"),
    "-+-": ("sub", "cot>sub pot>sub"),
    "--+": ("pot", "cot>pot sub>pot"),
    "++-": ("cot sub", "pot>cot pot>sub"),
    "+-+": ("cot pot", "sub>cot sub>pot"),
    "-++": ("sub pot", "cot>sub cot>pot"),
    "+++": ("cot sub pot", ""),
}
# What `direct: priority` keeps with the order pot, cot, sub.
FIRST = {
    "---": "",
    "+--": "cot",
    "-+-": "sub",
    "--+": "pot",
    "++-": "cot",
    "+-+": "pot",
    "-++": "pot",
    "+++": "pot",
}


def run(marks: str, seed: int = 0, **flags: object) -> Selection:
    owner = problem()
    return records([owner], few_shot(owner, marks), Epoch1Config(**flags), seed)  # type: ignore[arg-type]


def expected(marks: str, *, direct: str | None = None, refine: bool = True) -> list[tuple[str, str]]:
    targets, pairs = TABLE[marks]
    wanted = [("none", target) for target in (targets if direct is None else direct).split()]
    return sorted(wanted + [tuple(pair.split(">")) for pair in pairs.split()] * refine)  # type: ignore[misc]


def test_the_table_has_all_eight_combinations() -> None:
    assert sorted(TABLE) == sorted(map("".join, itertools.product("+-", repeat=3)))


@pytest.mark.parametrize("marks", TABLE)
class TestEveryCombination:
    def test_default(self, marks: str) -> None:
        chosen = run(marks)
        assert shapes(chosen.records) == expected(marks)
        assert chosen.counts["direct"] == len(TABLE[marks][0].split())
        assert chosen.counts["refine"] == len(TABLE[marks][1].split())
        assert chosen.counts["unsolved"] == (marks == "---")

    def test_no_refine(self, marks: str) -> None:
        assert shapes(run(marks, refine=False).records) == expected(marks, refine=False)

    def test_priority(self, marks: str) -> None:
        chosen = run(marks, direct="priority", priority=("pot", "cot", "sub"))
        assert shapes(chosen.records) == expected(marks, direct=FIRST[marks])

    def test_priority_leaves_out_what_it_does_not_list(self, marks: str) -> None:
        chosen = run(marks, direct="priority", priority=("sub",), refine=False)
        assert shapes(chosen.records) == ([("none", "sub")] if marks[1] == "+" else [])

    def test_one_random(self, marks: str) -> None:
        drawn = set()
        for seed in range(40):
            chosen = run(marks, seed, direct="one_random")
            targets = [s for tried, s in shapes(chosen.records) if tried == "none"]
            assert len(targets) == bool(TABLE[marks][0])
            assert shapes(chosen.records) == expected(marks, direct=" ".join(targets))
            drawn.update(targets)
        assert drawn == set(TABLE[marks][0].split())

    def test_one_random_refine_pair(self, marks: str) -> None:
        drawn = set()
        for seed in range(40):
            chosen = run(marks, seed, refine_pairs="one_random")
            pairs = [shape for shape in shapes(chosen.records) if shape[0] != "none"]
            assert len(pairs) == bool(TABLE[marks][1])
            assert [s for s in shapes(chosen.records) if s[0] == "none"] == expected(marks, refine=False)
            drawn.update(">".join(pair) for pair in pairs)
        assert drawn == set(TABLE[marks][1].split())

    def test_drop_easy(self, marks: str) -> None:
        chosen = run(marks, drop_easy=True)
        assert shapes(chosen.records) == ([] if marks == "+++" else expected(marks))
        assert chosen.counts["easy"] == (marks == "+++")

    def test_direct_subsample_touches_direct_records_only(self, marks: str) -> None:
        chosen = run(marks, direct_subsample=0.5)
        kept = [s for s in shapes(chosen.records) if s[0] == "none"]
        everything = expected(marks)
        assert len(kept) == (len(TABLE[marks][0].split()) + 1) // 2
        assert set(kept) <= set(everything)
        assert [s for s in shapes(chosen.records) if s[0] != "none"] == [
            s for s in everything if s[0] != "none"
        ]
        assert chosen.counts["dropped_subsample"] == len(TABLE[marks][0].split()) - len(kept)

    def test_balance_within_one_question_changes_nothing(self, marks: str) -> None:
        """Each correct strategy gives a direct record and a refine record a wrong one: equal counts."""
        assert shapes(run(marks, balance_strategies=True).records) == expected(marks)

    def test_max_records(self, marks: str) -> None:
        chosen = run(marks, max_records=2)
        everything = Counter(expected(marks))
        assert len(chosen.records) == min(2, everything.total())
        assert Counter(shapes(chosen.records)) <= everything
        assert chosen.counts["dropped_max"] == max(0, everything.total() - 2)

    def test_truncated_completions_are_never_targets(self, marks: str) -> None:
        """The program was cut: it still counts as correct or wrong, and no record teaches it."""
        owner = problem()
        chosen = records([owner], few_shot(owner, marks, "..|"), Epoch1Config(), 0)
        assert shapes(chosen.records) == [shape for shape in expected(marks) if shape[1] != "pot"]
        assert chosen.counts["truncated"] == 1
        assert chosen.counts["no_target"] == (marks == "--+")

    def test_an_unscored_attempt_is_on_neither_side(self, marks: str) -> None:
        """An unscored program is neither target nor failed strategy; its question is not easy."""
        owner = problem()
        chosen = records([owner], few_shot(owner, marks[:2] + "?"), Epoch1Config(drop_easy=True), 0)
        assert shapes(chosen.records) == [shape for shape in expected(marks) if "pot" not in shape]
        assert chosen.counts["unscored"] == 1


def pool(size: int = 60) -> tuple[list[Problem], list]:
    combos = sorted(TABLE)
    problems = [problem(n) for n in range(size)]
    return problems, [a for n, p in enumerate(problems) for a in few_shot(p, combos[n * n % 8])]


def test_records_hold_their_solutions_and_what_was_tried() -> None:
    owner = Problem.make("None of the 3 cats left. Is None a number?", "3", "toy")
    chosen = records([owner], few_shot(owner, "-++"), Epoch1Config(), 0)
    by_shape = {("+".join(r.tried), r.strategy): r for r in chosen.records}
    refined = by_shape["cot", POT]
    assert refined.kind == "refine" and by_shape["", POT].kind == "direct"
    assert refined.question == owner.question
    assert refined.solution == attempt(owner, POT, "+").solution
    assert refined.tried_solutions == (attempt(owner, COT, "-").solution,)


ALL_FLAGS = [
    {},
    {"direct": "one_random", "refine_pairs": "one_random"},
    {"direct_subsample": 0.25},
    {"balance_strategies": True},
    {"max_records": 17},
    {"direct_subsample": 0.5, "balance_strategies": True, "max_records": 20, "drop_easy": True},
]


@pytest.mark.parametrize("flags", ALL_FLAGS, ids=lambda flags: "+".join(flags) or "default")
def test_order_of_input_does_not_matter_and_the_seed_does(flags: dict[str, object]) -> None:
    problems, attempts = pool()
    config = Epoch1Config(**flags)  # type: ignore[arg-type]
    once = records(problems, attempts, config, 0)
    random.Random(5).shuffle(problems)
    random.Random(6).shuffle(attempts)
    again = records(iter(problems), iter(attempts), config, 0)
    assert [r.id for r in again.records] == [r.id for r in once.records] and again.counts == once.counts
    other = records(problems, attempts, config, 1)
    assert content_hash(other.records) != content_hash(once.records)
    if flags:
        assert {r.id for r in other.records} != {r.id for r in once.records}, "only the order differs"


def test_a_draw_for_one_question_does_not_depend_on_the_others() -> None:
    problems, attempts = pool()
    config = Epoch1Config(direct="one_random", refine_pairs="one_random")
    whole = records(problems, attempts, config, 3).records
    half = records(
        problems[:30], [a for a in attempts if a.problem_id in {p.id for p in problems[:30]}], config, 3
    )
    ids = {p.id for p in problems[:30]}
    assert {r.id for r in half.records} == {r.id for r in whole if r.problem_id in ids}


def test_records_are_shuffled_not_grouped() -> None:
    problems, attempts = pool()
    owners = [r.problem_id for r in records(problems, attempts, Epoch1Config(), 0).records]
    assert owners != sorted(owners)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("+-?", min_size=3, max_size=3), max_size=12), st.integers(0, 9))
def test_balance_caps_at_the_rarest_that_occurs(marks: list[str], seed: int) -> None:
    problems = [problem(n) for n in range(len(marks))]
    attempts = [a for p, m in zip(problems, marks, strict=True) for a in few_shot(p, m)]
    everything = records(problems, attempts, Epoch1Config(), seed)
    balanced = records(problems, attempts, Epoch1Config(balance_strategies=True), seed)
    present = [count for count in everything.by_strategy.values() if count]
    wanted = {name: min(present) if count else 0 for name, count in everything.by_strategy.items()}
    assert balanced.by_strategy == wanted
    assert {r.id for r in balanced.records} <= {r.id for r in everything.records}
    assert balanced.counts["dropped_balance"] == len(everything.records) - len(balanced.records)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text("+-? ", min_size=3, max_size=3), max_size=12))
def test_nothing_is_lost_uncounted(marks: list[str]) -> None:
    problems = [problem(n) for n in range(len(marks))]
    attempts = [a for p, m in zip(problems, marks, strict=True) for a in few_shot(p, m)]
    counts = records(problems, attempts, Epoch1Config(), 0).counts
    assert counts["correct"] + counts["wrong"] + counts["unscored"] == counts["attempts"] == len(attempts)
    assert counts["records"] == counts["direct"] + counts["refine"]
    assert counts["direct"] == counts["correct"]
    assert counts["problems"] == sum(m.strip() != "" for m in marks)


@pytest.mark.parametrize(("share", "kept"), [(0.07, 7), (0.25, 25), (0.001, 1), (0.101, 11), (1.0, 100)])
def test_subsample_rounds_up(share: float, kept: int) -> None:
    problems = [problem(n) for n in range(100)]
    attempts = [attempt(p, SUB, "+") for p in problems]
    assert len(records(problems, attempts, Epoch1Config(direct_subsample=share), 0).records) == kept


def test_nothing_in_nothing_out() -> None:
    chosen = records([problem()], [], Epoch1Config(balance_strategies=True, max_records=3), 0)
    assert chosen.records == () and chosen.counts["records"] == 0
    assert chosen.by_strategy == {"cot": 0, "sub": 0, "pot": 0}


def test_an_attempt_at_an_unknown_problem_is_an_error() -> None:
    with pytest.raises(DataError, match="1 of the problem ids are not among the 1 problems"):
        records([problem(1)], few_shot(problem(2), "+++"), Epoch1Config(), 0)
