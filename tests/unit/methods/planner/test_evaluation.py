"""Arms, pairs, the success criterion and training targets on built episodes.

Wrong if an arm's figures are not those of its episodes, if a difference is not of the same problems, if
success is said where the interval reaches below the margin, or if a wrong or invalid plan becomes a target.
"""

import pytest

from reasoner.errors import DataError, UsageError
from reasoner.methods.planner.episodes import Episode, episode_of, run_row
from reasoner.methods.planner.evaluation import (
    ATOMIC,
    DECOMPOSED,
    TRAINED,
    UNTRAINED,
    PlannerEvaluation,
    evaluate,
    measure_arm,
    oracle,
)
from reasoner.methods.planner.plan import Plan
from reasoner.methods.planner.targets import choose_targets
from reasoner.records import Outcome, Verdict
from reasoner.statistics.bootstrap import paired_difference
from tests.unit.methods.planner.world import ATOMIC as ATOMIC_TEXT
from tests.unit.methods.planner.world import Script, executor, one_hot, split

SIMPLE, SPLIT = Plan(False, (), "do it"), Plan(True, ("ab", "cd"), "then add")


def episode(
    number: int, right: bool | None, *, plan: Plan | None = SIMPLE, planner: int = 20, worker: int = 100
) -> Episode:
    outcome = Outcome.UNSCORED if right is None else Outcome.CORRECT if right else Outcome.INCORRECT
    return Episode(
        f"p{number}", f"q{number}", "1", plan, "ok" if plan else "keys", False, planner, worker,
        planner + worker, 0, Verdict(outcome, "x"),
    )  # fmt: skip


def arm(rights: list[bool | None], **more: object) -> list[Episode]:
    return [episode(i, right, **more) for i, right in enumerate(rights)]  # type: ignore[arg-type]


def test_a_run_becomes_an_episode() -> None:
    script = Script(
        lambda p: '{"final_answer": 5}' if "Solution 1" in p else '{"solution": "two words", "result": 2}'
    )
    made = executor(script).execute_pipeline("How many?", split("ab", "cd"), "p1")
    found = episode_of(run_row("How many?", "5", 30, made))
    assert found.verdict.correct and found.decomposed and found.plan == made.plan
    parts = [call.tokens for call in made.calls]
    assert found.worker_tokens == sum(parts) and found.sequential_tokens == 30 + max(parts[:2]) + parts[2]
    invalid = episode_of(
        run_row("How many?", "5", 7, executor(script).execute_pipeline("How many?", "{}", "p1"))
    )
    assert invalid.verdict.reason == "no_plan" and invalid.reason == "keys" and invalid.tokens == 7


def test_figures_of_an_arm() -> None:
    episodes = [
        episode(0, True, plan=SPLIT), episode(1, False, plan=None, worker=0), episode(2, None), episode(3, True),
    ]  # fmt: skip
    found = measure_arm(TRAINED, episodes, embed=one_hot)
    assert (found.accuracy.k, found.accuracy.n, found.unscored) == (2, 3, 1)
    assert (found.valid.k, found.valid.n, found.decomposed.k, found.decomposed.n) == (3, 4, 1, 3)
    assert found.subproblems == 2 and found.independence == 1.0 and found.reasons == {"keys": 1}
    assert found.planner_tokens == 20 and found.worker_tokens == 75


def test_the_oracle_takes_the_right_one_and_the_cheaper_of_equals() -> None:
    atomic, decomposed = (
        arm([True, False, True, False]),
        arm([False, True, True, False], plan=SPLIT, worker=300),
    )
    chosen = oracle(atomic, decomposed)
    assert [e.verdict.correct for e in chosen] == [True, True, True, False]
    assert [e.decomposed for e in chosen] == [False, True, False, False]


def measured(trained: list[bool | None], tokens: int = 100) -> PlannerEvaluation:
    base = [i % 2 == 0 for i in range(len(trained))]
    return evaluate(
        "set",
        {TRAINED: arm(trained, worker=tokens), UNTRAINED: arm(base), ATOMIC: arm(base, planner=0),
         DECOMPOSED: arm(base, plan=SPLIT, worker=300)},
        resamples=500,
    )  # fmt: skip


def test_above_is_said_only_with_the_interval() -> None:
    everything = measured([True] * 100)
    assert everything.verdict == "above" and [a.name for a in everything.arms][-1] == "oracle"
    pair = everything.pairs[0]
    assert (pair.gained, pair.lost) == (50, 0) and pair.accuracy.value == 0.5 and pair.p < 1e-10
    assert pair.accuracy.low is not None and 0.3 < pair.accuracy.low < 0.5 and pair.p_holm >= pair.p
    luck = measured([i % 2 == 0 or i == 1 for i in range(100)])
    assert luck.verdict == "not_shown" and "untrained planner and always atomic" in luck.sentence
    assert PlannerEvaluation.from_row(luck.to_row()) == luck


def test_equal_and_cheaper_is_success_and_cheaper_but_worse_is_not() -> None:
    same = [i % 2 == 0 for i in range(400)]
    assert measured(same, tokens=10).verdict == "cheaper"
    assert measured(same, tokens=200).verdict == "not_shown"
    worse = [right and i % 8 != 0 for i, right in enumerate(same)]
    assert measured(list(worse), tokens=10).verdict == "not_shown"


def test_unscored_problems_leave_every_pair_and_other_problems_are_refused() -> None:
    found = measured([None, *[True] * 9])
    assert found.pairs[0].accuracy.n == 9
    with pytest.raises(DataError, match="other problems"):
        evaluate("set", {TRAINED: arm([True]), ATOMIC: arm([True, True])})
    with pytest.raises(DataError, match="twice"):
        evaluate("set", {TRAINED: [episode(0, True), episode(0, True)]})
    assert evaluate("set", {TRAINED: arm([True])}).verdict == "no_baseline"


def test_bootstrap() -> None:
    found = paired_difference([1.0] * 10, [0.0] * 10)
    assert (found.value, found.low, found.high) == (1, 1, 1)
    spread = paired_difference([1, 0] * 200, [0, 0] * 200, resamples=2000)
    assert spread.low is not None and spread.high is not None
    # The standard error of a mean of 400 fair coins is 0.025.
    assert 0.45 - 0.01 < spread.low < 0.46 and 0.54 < spread.high < 0.56
    assert paired_difference([1, 0], [0, 1], seed=1) == paired_difference([1, 0], [0, 1], seed=1)
    assert paired_difference([], []).value is None
    with pytest.raises(UsageError, match="same problems"):
        paired_difference([1], [])


def test_targets_are_right_short_and_unique() -> None:
    long = Plan(False, (), "do it in a rather longer way")
    episodes = [
        episode(0, True, plan=long), episode(0, True), episode(0, True),
        episode(1, False), episode(1, True, plan=SPLIT),
        episode(2, False), episode(2, True, plan=None), episode(3, None),
    ]  # fmt: skip
    found = choose_targets(episodes)
    assert {(t.problem_id, t.plan) for t in found.targets} == {("p0", SIMPLE), ("p1", SPLIT)}
    assert found.counts["unsolved"] == 2 and found.counts["atomic"] == found.counts["decomposed"] == 1
    assert len(choose_targets(episodes, keep=5).targets) == 3
    assert len(choose_targets(episodes, max_records=1).targets) == 1
    assert choose_targets(list(reversed(episodes))).targets == found.targets, "the order does not count"


def test_targets_have_as_many_subproblems_as_are_wanted() -> None:
    four = Plan(True, ("one", "two", "three", "four"), "x")
    episodes = [episode(0, True, plan=four), episode(1, True, plan=four), episode(1, True, plan=SPLIT)]
    assert {t.plan for t in choose_targets(episodes).targets} == {four, SPLIT}
    found = choose_targets(episodes, max_subproblems=3)
    assert [(t.problem_id, t.plan) for t in found.targets] == [("p1", SPLIT)]
    assert (found.counts["unsolved"], found.counts["too_many_subproblems"]) == (0, 1)


def test_balanced_targets() -> None:
    episodes = [episode(i, True, plan=SPLIT if i == 0 else SIMPLE) for i in range(5)]
    assert choose_targets(episodes, balance=True).counts["atomic"] == 1
    assert choose_targets(episodes[1:], balance=True).counts["atomic"] == 4, "one kind alone is kept"


def test_what_the_worker_was_not_asked_counts_nothing() -> None:
    made = executor(Script(lambda _: "5")).execute_pipeline("How many?", ATOMIC_TEXT)
    assert len(made.calls) == 1 and made.calls[0].role == "direct"
