"""Which questions GRPO learns from.

Wrong if a question is kept of which all answers are right or all are wrong, or of which nothing is known.
"""

from typing import Any

import pytest
from pydantic import ValidationError

from reasoner.config.planner import PlannerGrpoConfig
from reasoner.config.smart import ComputeConfig, SmartGrpoConfig
from reasoner.problems.telling import choose_telling, pass_rates
from reasoner.records import Problem

ASKED = [Problem(name, "?", "1", "toy", name) for name in ("easy", "hard", "telling", "unseen", "rare")]
JUDGED = [
    ("easy", True), ("easy", True), ("hard", False), ("hard", False), ("telling", True), ("telling", False),
    *[("rare", i == 0) for i in range(20)],
]  # fmt: skip


def test_only_questions_that_some_answers_solve_are_kept_in_their_order() -> None:
    found = choose_telling(ASKED, JUDGED, 0.05, 0.9)
    assert [p.id for p in found.problems] == ["telling", "rare"]
    assert found.counts == {"questions": 5, "kept": 2, "too_hard": 1, "too_easy": 1, "untried": 1}


def test_bounds_belong_to_the_range() -> None:
    assert [p.id for p in choose_telling(ASKED, JUDGED, 0.5, 1.0).problems] == ["easy", "telling"]
    assert choose_telling(ASKED, JUDGED, 0.51, 0.99).problems == ()


def test_a_rate_is_the_share_of_right_answers() -> None:
    assert pass_rates([("a", True), ("b", False), ("a", False)]) == {"a": 0.5, "b": 0.0}


@pytest.mark.parametrize("section", [PlannerGrpoConfig, SmartGrpoConfig])
@pytest.mark.parametrize(
    "wrong_range", [[0.9, 0.1], [-0.1, 0.5], [0.1, 1.1], [0.1], [0.1, 0.5, 0.9], ["a", "b"], 0.5]
)
def test_a_range_that_is_none_is_refused(
    section: type[PlannerGrpoConfig] | type[SmartGrpoConfig], wrong_range: Any
) -> None:
    with pytest.raises(ValidationError, match="two shares from 0 to 1, the lower one first"):
        section.model_validate({"pass_rate": wrong_range})


def test_which_questions_are_asked_is_decided_before_the_training() -> None:
    chosen = SmartGrpoConfig(pass_rate=(0.1, 0.9))
    assert chosen.on(ComputeConfig()) == SmartGrpoConfig().on(ComputeConfig())
