"""The reward table of METHODS 4.4, the filter, and the masks.

Wrong if a row of the table comes out otherwise, if an all-wrong group has variance in gated mode, if the
filter looks at anything but correctness, or if an unscored plan is paid.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reasoner.config.planner import RewardConfig
from reasoner.errors import DataError, InfrastructureError
from reasoner.methods.planner.pipeline import PipelineExecutor
from reasoner.methods.planner.prompts import load_prompts
from reasoner.methods.planner.reward import PipelineRewardFunction, Scored, combine, efficiency, mask_groups
from reasoner.methods.planner.training_args import TrainingArgs
from reasoner.methods.planner.worker import FrozenWorker
from reasoner.records import Sampling
from tests.unit.methods.planner.world import ATOMIC, Script, executor, render, split

ORIGINAL = RewardConfig(mode="original", filter_zero_variance="none")
GATED = RewardConfig()


@pytest.mark.parametrize(
    ("valid", "correct", "tokens", "independence", "reward"),
    [
        (True, 1, 200, 0.5, 1.31),
        (True, 1, 700, 0.5, 1.21),
        (True, 0, 100, 0.5, 0.33),
        (True, 0, 400, 0.95, 0.405),
        (False, 0, 0, 0.5, 0.10),
    ],
)
def test_the_original_table(
    valid: bool, correct: float, tokens: int, independence: float, reward: float
) -> None:
    economy = efficiency(ORIGINAL, tokens, planner_tokens=999)  # the planner's tokens never count there
    got = combine(ORIGINAL, valid=valid, correct=correct, efficiency=economy, independence=independence)
    assert got == pytest.approx(reward)


def test_gated() -> None:
    def paid(correct: float | None, valid: bool = True, config: RewardConfig = GATED) -> float | None:
        return combine(config, valid=valid, correct=correct, efficiency=0.8, independence=0.5)

    assert paid(1) == pytest.approx(1.31) and paid(0) == 0 and paid(0, valid=False) == 0
    assert paid(0.5) == pytest.approx(0.5 + 0.5 * 0.31), "the mean over samples gates in proportion"
    assert paid(None) is None
    bonus = RewardConfig(format_bonus=0.05)
    assert paid(0, config=bonus) == 0.05 and paid(0, valid=False, config=bonus) == 0
    assert efficiency(GATED, 300, 100) == pytest.approx(0.6)
    assert efficiency(RewardConfig(count_planner_tokens=False), 300, 100) == pytest.approx(0.7)
    assert efficiency(GATED, 5000, 0) == 0


def scored(correct: float | None, reward: float | None) -> Scored:
    return Scored(True, False, correct, 0.5, 0.5, 10, 5, 0, False, reward)


def test_groups_are_filtered_on_correctness_alone() -> None:
    wrong = [scored(0, 0.1), scored(0, 0.4)]
    right = [scored(1, 1.1), scored(1, 1.4)]
    mixed = [scored(0, 0.2), scored(1, 0.2)]
    unknown = [scored(None, None), scored(1, 1.2)]
    every = [*wrong, *right, *mixed, *unknown]
    assert mask_groups(every, 2, GATED) == [None] * 4 + [0.2, 0.2] + [None, None]
    open_ = RewardConfig(filter_zero_variance="none")
    assert mask_groups(every, 2, open_) == [0.1, 0.4, 1.1, 1.4, 0.2, 0.2, None, 1.2]
    some = RewardConfig(filter_zero_variance="none", mask_all_correct_side_terms=True)
    assert mask_groups(every, 2, some) == [0.1, 0.4, None, None, 0.2, 0.2, None, None]
    with pytest.raises(DataError, match="no whole groups"):
        mask_groups(wrong, 3, GATED)


QUESTION = "How many?"


def reward_function(
    config: RewardConfig, script: Script, group: int = 2, **more: object
) -> PipelineRewardFunction:
    temperature = 0.7 if "samples" in more else 0.0
    return PipelineRewardFunction(executor(script, temperature), config, group, **more)  # type: ignore[arg-type]


def call(
    function: PipelineRewardFunction, outputs: Sequence[str], gold: str = "5", **more: object
) -> list[float | None]:
    n = len(outputs)
    return function(
        prompts=["p"] * n, completions=outputs, completion_ids=[[1] * 10] * n, question=[QUESTION] * n,
        gold=[gold] * n, problem_id=["p1"] * n, trainer_state=None, **more,
    )  # type: ignore[arg-type]  # fmt: skip


def right_when_direct(prompt: str) -> str:
    return '{"final_answer": 6}' if "Solution 1" in prompt else '{"final_answer": 5}'


def test_from_texts_to_rewards_and_metrics() -> None:
    seen: list[dict] = []
    logged: dict[str, float] = {}
    function = reward_function(GATED, Script(right_when_direct, tokens=90), on_step=seen.append)
    rewards = call(function, [ATOMIC, split("ab", "cd")], log_metric=logged.__setitem__)
    assert rewards == [pytest.approx(1 + 0.2 * 0.9 + 0.15), 0.0]
    numbers = seen[0]["metrics"]
    assert numbers["correct"] == 0.5 and numbers["decomposed"] == 0.5 and numbers["independence"] == 1.0
    assert numbers["worker_tokens"] == (90 + 270) / 2 and numbers["groups_used"] == 1
    assert logged["planner/correct"] == 0.5 and {f"planner/{k}" for k in numbers} == set(logged)
    assert [row["used_reward"] for row in seen[0]["rows"]] == rewards
    assert call(function, ["no plan", ATOMIC])[0] == 0


def test_gated_has_no_variance_on_an_all_wrong_group_and_original_has() -> None:
    outputs = [ATOMIC, split("ab", "cd"), split("ab", "ae"), "none"]
    open_ = GATED.model_copy(update={"filter_zero_variance": "none"})
    wrong = Script(lambda _: "The answer is 7")
    assert set(call(reward_function(open_, wrong, 4), outputs)) == {0.0}
    assert len(set(call(reward_function(ORIGINAL, wrong, 4), outputs))) == 4
    filtered = ORIGINAL.model_copy(update={"filter_zero_variance": "correctness"})
    assert call(reward_function(filtered, wrong, 4), outputs) == [None] * 4


def test_a_worker_asked_several_times_gives_a_share() -> None:
    script = Script(lambda _: "")
    answers = iter(["5", "6", "5", "5"])
    script.answers = lambda _: f"The answer is {next(answers)}"
    function = reward_function(GATED, script, 2, samples=2)
    plans, _ = function.score(_items([ATOMIC, ATOMIC]), ["5", "5"], [10, 10])
    assert [p.correct for p in plans] == [0.5, 1.0]


def _items(outputs: Sequence[str]) -> list:
    from reasoner.methods.planner.pipeline import Planned

    return [Planned("p1", QUESTION, o) for o in outputs]


def test_every_sample_of_a_worker_counts_in_its_tokens() -> None:
    answers = iter(["5", "The answer is 5"])
    function = reward_function(GATED, Script(lambda _: next(answers)), samples=2)
    plans, _ = function.score(_items([ATOMIC]), ["5"], [10])
    assert plans[0].worker_tokens == (1 + 4) / 2


def test_cut_calls_of_the_worker_are_counted() -> None:
    logged: dict[str, float] = {}
    function = reward_function(GATED, Script(right_when_direct, finish="length"))
    call(function, [ATOMIC, split("ab", "cd")], log_metric=logged.__setitem__)
    assert logged["planner/truncated_worker_calls"] == 1 + 3


def test_a_prompt_without_room_for_an_answer_is_a_cut_call_without_text() -> None:
    script = Script(right_when_direct)
    made = FrozenWorker(script, render, load_prompts(), Sampling(), fits=lambda *_: False)
    plans, results = PipelineRewardFunction(PipelineExecutor(made), GATED, 2).score(
        _items([ATOMIC]), ["5"], [10]
    )
    assert script.batches == [] and (plans[0].truncated_calls, plans[0].correct, results[0].text) == (
        1,
        0,
        "",
    )


@pytest.mark.parametrize(("config", "value"), [(GATED, 1.0), (ORIGINAL, 2.0)], ids=["gated", "original"])
def test_opposite_parts_are_clipped_where_side_terms_are_gated(config: RewardConfig, value: float) -> None:
    function = reward_function(config, Script(right_when_direct))
    function.executor._embed = lambda _: [[1.0], [-1.0]]
    plans, _ = function.score(_items([split("ab", "cd")]), ["6"], [0])
    assert plans[0].independence == value
    assert plans[0].reward == pytest.approx(1 + 0.2 * plans[0].efficiency + 0.3 * value)


def test_an_atomic_plan_is_as_independent_as_is_configured() -> None:
    function = reward_function(RewardConfig(neutral_independence=0.9), Script(right_when_direct))
    plans, _ = function.score(_items([ATOMIC, split("ab", "cd")]), ["5", "6"], [0, 0])
    assert [plan.independence for plan in plans] == [0.9, 1.0]


def test_unscored_plans_are_masked_and_too_many_stop_the_run() -> None:
    lenient = RewardConfig(max_unscored=1)
    assert call(reward_function(lenient, Script(right_when_direct)), [ATOMIC, ATOMIC], gold="some") == [
        None,
        None,
    ]
    with pytest.raises(InfrastructureError, match="2 of 2 plans of this step are unscored"):
        call(reward_function(GATED, Script(right_when_direct)), [ATOMIC, ATOMIC], gold="some")


def test_no_embedder_is_needed_where_independence_has_no_weight() -> None:
    def forbidden(_: Sequence[str]) -> list[list[float]]:
        raise AssertionError("the embedder was asked")

    function = reward_function(RewardConfig(independence_weight=0), Script(right_when_direct))
    function.executor._embed = forbidden
    call(function, [ATOMIC, split("ab", "cd")])


def test_the_originals_defaults() -> None:
    args = TrainingArgs()
    assert (args.correctness_weight, args.token_weight, args.independence_weight) == (1.0, 0.2, 0.3)
    assert (args.lora_r, args.lora_alpha, args.lr, args.batch_size, args.grad_accum) == (16, 32, 1e-5, 1, 8)
    assert (args.max_steps, args.num_generations, args.temperature, args.max_samples) == (500, 4, 0.7, 1000)
    assert args.base_model == "meta-llama/Llama-3.1-8B-Instruct" and not (args.no_4bit or args.no_wandb)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.5, 1.0, None]), st.floats(0, 2)), min_size=4, max_size=4))
def test_a_masked_group_is_masked_whole_and_nobody_unscored_is_paid(rows: list) -> None:
    members = [scored(c, None if c is None else r) for c, r in rows]
    rewards = mask_groups(members, 4, GATED)
    assert all(r is None for r, m in zip(rewards, members, strict=True) if m.correct is None)
    known = {m.correct for m in members} - {None}
    assert all(r is None for r in rewards) == (len(known) <= 1)
