"""Epoch 2 and later: the majority rules, second turns, implicit biasing, noise and caps."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reasoner.config.smart import Epoch2Config
from reasoner.errors import DataError
from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.epoch2 import records, turn2_queue
from reasoner.methods.smart.selection import Selection
from reasoner.records import Problem, Strategy
from tests.unit.methods.smart.build import COT, POT, SUB, attempt, problem, samples, shapes

Q = problem()


def queue(
    turn1: list[Attempt], config: Epoch2Config | None = None, seed: int = 0
) -> list[tuple[Strategy, ...]]:
    return [turn.tried for turn in turn2_queue([Q], turn1, config or Epoch2Config(), seed)[0]]


def run(turn1: list[Attempt], turn2: list[Attempt] = (), **flags: object) -> Selection:  # type: ignore[assignment]
    return records([Q], turn1, turn2, Epoch2Config(**flags), 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("groups", "direct", "queued"),
    [
        # METHODS 2.11, word for word
        ([(COT, 3, 3)], [], [(COT,)]),
        ([(COT, 1, 0)], ["cot"], []),
        ([(COT, 2, 2)], [], [(COT,)]),
        ([(None, 0, 10)], [], []),
        ([(None, 5, 5)], [], []),
        ([(POT, 5, 0), (COT, 1, 4)], ["pot"], [(COT,)]),
        # and around it
        ([(COT, 5, 5)], [], [(COT,)]),
        ([(COT, 4, 3)], ["cot"], []),
        ([(COT, 3, 4)], [], [(COT,)]),
        ([(COT, 0, 1)], [], [(COT,)]),
        ([(COT, 0, 1), (SUB, 0, 4), (POT, 2, 3)], [], [(COT,), (SUB,), (POT,)]),
        ([(COT, 2, 1), (SUB, 2, 1), (POT, 2, 1)], ["cot", "pot", "sub"], []),
        ([(POT, 1, 0), (None, 0, 9)], ["pot"], []),
        ([], [], []),
    ],
)
def test_majority_inside_a_strategy(groups: list, direct: list[str], queued: list) -> None:
    turn1 = samples(Q, *groups)
    assert shapes(run(turn1).records) == [("none", strategy) for strategy in direct]
    assert queue(turn1) == queued


@pytest.mark.parametrize(
    ("groups", "direct"),
    [
        ([(COT, 1, 9)], ["cot"]),
        ([(COT, 3, 3), (SUB, 0, 2), (POT, 2, 0)], ["cot", "pot"]),
        ([(COT, 0, 5), (None, 5, 0)], []),
    ],
)
def test_one_correct_sample_is_enough_where_any_is_accepted(groups: list, direct: list[str]) -> None:
    """And second turns stay those of the majority rule, so that both share their samples."""
    turn1 = samples(Q, *groups)
    chosen = run(turn1, accept="any")
    assert shapes(chosen.records) == [("none", strategy) for strategy in direct]
    assert queue(turn1, Epoch2Config(accept="any")) == queue(turn1)
    assert chosen.counts["turn1_accepted"] == run(turn1).counts["turn1_accepted"]
    turn2 = [attempt(Q, COT, "+", index=0, tried=(SUB,)), attempt(Q, COT, "-", index=1, tried=(SUB,))]
    if (SUB,) in queue(turn1):
        assert ("sub", "cot") in shapes(run(turn1, turn2, accept="any").records)
        assert ("sub", "cot") not in shapes(run(turn1, turn2).records)


def test_counts_of_noise_and_decisions() -> None:
    turn1 = samples(Q, (POT, 5, 0), (COT, 1, 4), (None, 1, 2))
    turn1.append(attempt(Q, SUB, "?", index=20))
    turn1.append(attempt(Q, None, "?", index=21, finish="length"))
    counts = turn2_queue([Q], turn1, Epoch2Config(), 0)[1]
    assert counts == {
        "turn1_samples": 15,
        "turn1_invalid_prefix": 4,
        "turn1_reused": 0,
        "turn1_unscored": 1,
        "turn1_truncated": 1,
        "turn1_accepted": 1,
        "turn1_failed": 1,
        "turn1_no_target": 0,
        "queued": 1,
        "dropped_max_turn2": 0,
    }
    mine = run(turn1).counts
    assert all(mine[name] == counts[name] for name in counts if name.startswith("turn1_"))


def test_unscored_samples_count_on_neither_side() -> None:
    unscored = [attempt(Q, COT, "?", index=10 + i) for i in range(5)]
    assert shapes(run([*samples(Q, (COT, 2, 1)), *unscored]).records) == [("none", "cot")]
    assert queue([*samples(Q, (COT, 1, 1)), *unscored]) == [(COT,)]
    assert queue(unscored) == [] and run(unscored).records == ()


def test_the_first_correct_sample_that_ended_is_the_target() -> None:
    turn1 = [
        attempt(Q, COT, "-", index=0, solution="wrong"),
        attempt(Q, COT, "+", index=1, solution="rambling", finish="length"),
        attempt(Q, COT, "+", index=2, solution="first"),
        attempt(Q, COT, "+", index=3, solution="second"),
    ]
    assert [r.solution for r in run(turn1[::-1]).records] == ["first"]


def test_a_majority_of_truncated_samples_gives_no_record_and_no_second_turn() -> None:
    turn1 = [attempt(Q, COT, "+", index=i, finish="length") for i in range(3)]
    chosen = run(turn1)
    assert chosen.records == () and queue(turn1) == []
    assert chosen.counts["turn1_no_target"] == 1 == chosen.counts["turn1_accepted"]


def test_truncated_samples_count_by_their_verdict() -> None:
    turn1 = [attempt(Q, COT, "+", index=0), attempt(Q, COT, "-", index=1, finish="length")]
    assert run(turn1).records == () and queue(turn1) == [(COT,)]


def test_keep_per_strategy_keeps_the_first_distinct_ones() -> None:
    texts = ["a  b", "c", "a b", "d", "c ", "e"]
    turn1 = [attempt(Q, POT, "+", index=i, solution=text) for i, text in enumerate(texts)]
    for keep, wanted in [
        (1, {"a  b"}),
        (2, {"a  b", "c"}),
        (3, {"a  b", "c", "d"}),
        (9, {"a  b", "c", "d", "e"}),
    ]:
        chosen = run(turn1, keep_per_strategy=keep)
        assert {r.solution for r in chosen.records} == wanted and len(chosen.records) == len(wanted)


FAILED_COT = samples(Q, (COT, 1, 4))


@pytest.mark.parametrize(
    ("biasing", "wanted"),
    [
        ("none", [("cot", "pot")]),
        ("add", [("cot", "pot"), ("none", "pot")]),
        ("replace", [("none", "pot")]),
    ],
)
def test_biasing(biasing: str, wanted: list) -> None:
    turn2 = samples(Q, (POT, 3, 1), (SUB, 2, 2), (None, 0, 1), tried=(COT,))
    chosen = run(FAILED_COT, turn2, biasing=biasing)
    assert shapes(chosen.records) == wanted
    assert chosen.counts["biased"] == (biasing != "none")
    assert {r.solution for r in chosen.records} == {"pot + 1 of What is 0 + 1?"}


def test_a_refine_record_tells_what_failed() -> None:
    turn2 = samples(Q, (POT, 1, 0), tried=(COT,))
    (record,) = run(FAILED_COT, turn2, biasing="none").records
    assert (record.kind, record.tried, record.question) == ("refine", (COT,), Q.question)
    (turn,) = turn2_queue([Q], FAILED_COT, Epoch2Config(), 0)[0]
    assert record.tried_solutions == turn.tried_solutions == (FAILED_COT[0].solution,)


def test_second_turns_that_reuse_a_tried_strategy_are_noise() -> None:
    turn2 = samples(Q, (COT, 9, 0), (None, 0, 1), tried=(COT,))
    chosen = run(FAILED_COT, turn2)
    assert chosen.records == ()
    assert chosen.counts["turn2_reused"] == 9 and chosen.counts["turn2_invalid_prefix"] == 1
    assert chosen.counts["turn2_accepted"] == chosen.counts["turn2_failed"] == 0


def test_there_is_no_third_turn() -> None:
    turn2 = samples(Q, (POT, 0, 5), tried=(COT,))
    chosen = run(FAILED_COT, turn2)
    assert chosen.records == () and chosen.counts["turn2_failed"] == 1


def test_biasing_adds_nothing_to_a_strategy_that_turn_1_accepted() -> None:
    turn1 = samples(Q, (POT, 5, 0), (COT, 1, 4))
    turn2 = [attempt(Q, POT, "+", index=0, tried=(COT,), solution="another")]
    chosen = run(turn1, turn2)
    assert shapes(chosen.records) == [("cot", "pot"), ("none", "pot")]
    assert chosen.counts["biased"] == 0 and chosen.counts["biased_redundant"] == 1
    more = run(turn1, turn2, keep_per_strategy=6)
    assert shapes(more.records) == [("cot", "pot")] + [("none", "pot")] * 6
    same = run(turn1, [replace(turn2[0], solution=turn1[0].solution)], keep_per_strategy=6)
    assert same.counts["biased_redundant"] == 1


def test_two_failures_that_lead_to_one_strategy_bias_once() -> None:
    turn1 = samples(Q, (COT, 0, 3), (SUB, 0, 3))
    turn2 = samples(Q, (POT, 2, 0), tried=(COT,)) + samples(Q, (POT, 2, 0), tried=(SUB,))
    chosen = run(turn1, turn2)
    assert shapes(chosen.records) == [("cot", "pot"), ("none", "pot"), ("sub", "pot")]


def test_a_truncated_second_turn_is_no_target() -> None:
    turn2 = [attempt(Q, POT, "+", index=0, tried=(COT,), finish="length")]
    chosen = run(FAILED_COT, turn2)
    assert chosen.records == () and chosen.counts["turn2_no_target"] == 1


def only_program_solves(
    owner: Problem, tried: tuple[Strategy, ...], n: int, rng: random.Random
) -> list[Attempt]:
    """A scripted policy: at first it only uses prose and fails; told so, it sometimes writes a program."""
    made = []
    for index in range(n):
        strategy = rng.choice([COT, COT, SUB, None] if not tried else [POT, POT, *tried])
        made.append(attempt(owner, strategy, "+" if strategy is POT else "-", index=index, tried=tried))
    return made


@pytest.mark.parametrize("biasing", ["none", "add", "replace"])
def test_toy_end_to_end_where_only_programs_solve(biasing: str) -> None:
    problems = [problem(n) for n in range(20)]
    config = Epoch2Config(biasing=biasing)  # type: ignore[arg-type]
    rng = random.Random(0)
    turn1 = [a for p in problems for a in only_program_solves(p, (), 10, rng)]
    asked, counts = turn2_queue(problems, turn1, config, 0)
    by_id = {p.id: p for p in problems}
    turn2 = [a for turn in asked for a in only_program_solves(by_id[turn.problem_id], turn.tried, 10, rng)]
    chosen = records(problems, turn1, turn2, config, 0)
    assert counts["turn1_accepted"] == 0 and counts["queued"] == len(asked) >= 20
    direct = [r for r in chosen.records if not r.tried]
    assert {r.strategy for r in chosen.records} == {POT}
    assert len(direct) == (0 if biasing == "none" else 20), (
        "every question gets (none -> PoT) by biasing, once"
    )
    assert len(chosen.records) - len(direct) == (0 if biasing == "replace" else len(asked))


def sampled(size: int = 40, seed: int = 0) -> tuple[list[Problem], list[Attempt], list[Attempt]]:
    rng = random.Random(seed)
    problems = [problem(n) for n in range(size)]

    def ask(owner: Problem, tried: tuple[Strategy, ...]) -> list[Attempt]:
        return [
            attempt(owner, rng.choice([*Strategy, None]), rng.choice("++-?"), index=i, tried=tried)
            for i in range(8)
        ]

    turn1 = [a for p in problems for a in ask(p, ())]
    by_id = {p.id: p for p in problems}
    turn2 = [
        a
        for turn in turn2_queue(problems, turn1, Epoch2Config(), 0)[0]
        for a in ask(by_id[turn.problem_id], turn.tried)
    ]
    return problems, turn1, turn2


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"keep_per_strategy": 3},
        {"balance_strategies": True},
        {"max_records": 13},
        {"biasing": "replace", "max_records": 30, "balance_strategies": True},
    ],
    ids=lambda flags: "+".join(flags) or "default",
)
def test_order_of_input_does_not_matter_and_the_seed_does(flags: dict[str, object]) -> None:
    problems, turn1, turn2 = sampled()
    config = Epoch2Config(**flags)  # type: ignore[arg-type]
    once = records(problems, turn1, turn2, config, 0)
    for shuffled in (problems, turn1, turn2):
        random.Random(9).shuffle(shuffled)
    again = records(iter(problems), iter(turn1), iter(turn2), config, 0)
    assert [r.id for r in again.records] == [r.id for r in once.records] and again.counts == once.counts
    other = records(problems, turn1, turn2, config, 1)
    later = records(problems, turn1, turn2, config, 0, epoch=3)
    orders = {tuple(r.id for r in chosen.records) for chosen in (once, other, later)}
    assert len(orders) == 3
    if config.max_records:
        assert len({frozenset(order) for order in orders}) == 3, "another seed or epoch draws other records"
        assert len(once.records) == min(config.max_records, len(once.records) + once.counts["dropped_max"])


def test_balance_over_both_turns() -> None:
    problems, turn1, turn2 = sampled()
    everything = records(problems, turn1, turn2, Epoch2Config(), 0)
    balanced = records(problems, turn1, turn2, Epoch2Config(balance_strategies=True), 0)
    assert len(set(everything.by_strategy.values())) > 1, "the example is too even to show anything"
    assert set(balanced.by_strategy.values()) == {min(everything.by_strategy.values())}


def test_max_turn2_draws_by_seed_and_not_by_order() -> None:
    problems, turn1, turn2 = sampled()
    config = Epoch2Config(max_turn2=7)
    kept, counts = turn2_queue(problems, turn1, config, 0)
    whole, _ = turn2_queue(problems, turn1, Epoch2Config(), 0)
    assert len(kept) == 7 and counts["queued"] == 7 and counts["dropped_max_turn2"] == len(whole) - 7
    assert [turn for turn in whole if turn in kept] == kept
    random.Random(2).shuffle(turn1)
    assert turn2_queue(problems[::-1], turn1, config, 0)[0] == kept
    assert turn2_queue(problems, turn1, config, 1)[0] != kept
    assert turn2_queue(problems, turn1, config, 0, epoch=3)[0] != kept
    answered = {(turn.problem_id, turn.tried) for turn in kept}
    part = [a for a in turn2 if (a.problem_id, a.tried) in answered]
    assert records(problems, turn1, part, config, 0).counts["turn2_samples"] == len(part) == 56


def test_a_question_with_none_in_it_survives() -> None:
    owner = Problem.make("None of 3 boxes is empty. None?", "3", "toy")
    turn1 = samples(owner, (COT, 0, 2))
    turn2 = samples(owner, (POT, 2, 0), tried=(COT,))
    chosen = records([owner], turn1, turn2, Epoch2Config(), 0)
    assert {r.question for r in chosen.records} == {owner.question} and len(chosen.records) == 2


@pytest.mark.parametrize(
    ("turn1", "turn2", "says"),
    [
        (FAILED_COT, samples(Q, (POT, 1, 0), tried=(SUB,)), "tried sub, turn 2, is not what turn 1 asks for"),
        (samples(Q, (COT, 1, 0)), samples(Q, (POT, 1, 0), tried=(COT,)), "is not what turn 1 asks for"),
        (FAILED_COT, FAILED_COT, "tried none, turn 1, is not what turn 1 asks for"),
        (samples(Q, (COT, 1, 1), tried=(SUB,)), [], "one of turn 2 with 1 strategies tried"),
        (FAILED_COT + FAILED_COT[:1], [], "sample 0 more than once"),
        (samples(problem(9), (COT, 1, 0)), [], "not among the 1 problems"),
    ],
)
def test_samples_that_do_not_belong_together_are_refused(turn1: list, turn2: list, says: str) -> None:
    with pytest.raises(DataError, match=says):
        run(turn1, turn2)


marks = st.lists(st.tuples(st.sampled_from([*Strategy, None]), st.sampled_from("+-?")), max_size=10)


@settings(max_examples=150, deadline=None)
@given(marks)
def test_turn_1_agrees_with_a_count_by_hand(made: list[tuple[Strategy | None, str]]) -> None:
    turn1 = [attempt(Q, s, mark, index=i) for i, (s, mark) in enumerate(made)]
    for strategy in Strategy:
        right, wrong = made.count((strategy, "+")), made.count((strategy, "-"))
        assert (("none", strategy.value) in shapes(run(turn1).records)) == (right > wrong)
        assert ((strategy,) in queue(turn1)) == (wrong > 0 and right <= wrong)
