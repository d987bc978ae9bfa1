"""What a response is worth. Wrong if an unscored one counts as 0, a cut one as right, or an equal group teaches."""

from typing import Any

import pytest

from reasoner.errors import DataError
from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.reward import VerdictReward, mask_groups, worth
from reasoner.records import Outcome, Strategy, Verdict


def attempt(outcome: Outcome, strategy: Strategy | None = Strategy.COT, finish: str = "stop") -> Attempt:
    return Attempt("p", strategy, 1, (), 0, "text", "text", Verdict(outcome, "because"), finish)


@pytest.mark.parametrize(
    ("given", "paid"),
    [
        (attempt(Outcome.CORRECT), 1.0),
        (attempt(Outcome.INCORRECT), 0.0),
        (attempt(Outcome.INCORRECT, None), 0.0),
        (attempt(Outcome.CORRECT, finish="length"), 0.0),
        (attempt(Outcome.UNSCORED), None),
        (attempt(Outcome.UNSCORED, finish="length"), None),
    ],
)
def test_worth(given: Attempt, paid: float | None) -> None:
    assert worth(given) == paid


def test_equal_groups_are_masked_and_unscored_responses_do_not_make_them_differ() -> None:
    assert mask_groups([1.0, 0.0, 1.0, 1.0], 2) == [1.0, 0.0, None, None]
    assert mask_groups([0.0, 0.0, None, None], 2) == [None] * 4
    assert mask_groups([1.0, None, 0.0, 0.0, None, 0.0], 3) == [1.0, None, 0.0, None, None, None]
    with pytest.raises(DataError, match="no whole groups"):
        mask_groups([1.0, 0.0, 1.0], 2)


def test_one_unscored_response_is_masked_and_its_group_is_used() -> None:
    outcomes = [Outcome.CORRECT, Outcome.UNSCORED, Outcome.INCORRECT, Outcome.CORRECT]
    steps: list[dict[str, Any]] = []
    numbers: dict[str, float] = {}
    pay = VerdictReward(lambda rows: [attempt(o) for o in outcomes], 4, steps.append)
    four: dict[str, Any] = {
        name: ["x"] * 4
        for name in ("prompts", "completions", "text", "finish", "question", "gold", "problem_id")
    }
    rewards = pay(**four, completion_ids=[[1, 2]] * 4, log_metric=numbers.__setitem__)
    assert rewards == [1.0, None, 0.0, 1.0]
    assert numbers["smart/unscored"] == 1 and numbers["smart/correct"] == pytest.approx(2 / 3)
    assert numbers["smart/groups_used"] == 1 and numbers["smart/tokens"] == 2 and numbers["smart/cot"] == 1
    assert [row["used_reward"] for row in steps[0]["rows"]] == rewards
