"""Which questions GRPO learns from.

Wrong if a question is kept of which all plans are right or all are wrong, if an unscored plan counts as wrong, if an
invalid one does not, or if a question that nothing is known of is kept.
"""

import pytest
from pydantic import ValidationError

from reasoner.config.planner import PlannerGrpoConfig
from reasoner.methods.planner.episodes import Episode
from reasoner.methods.planner.plan import Plan
from reasoner.methods.planner.questions import choose_questions, pass_rates
from reasoner.records import Outcome, Problem, Verdict


def tried(name: str, outcome: Outcome, plan: Plan | None = Plan(False, (), "")) -> Episode:
    return Episode(name, "?", "1", plan, "", False, 1, 1, 1, 0, Verdict(outcome, ""))


def right(name: str) -> Episode:
    return tried(name, Outcome.CORRECT)


def wrong(name: str) -> Episode:
    return tried(name, Outcome.INCORRECT)


ASKED = [
    Problem(name, "?", "1", "toy", name)
    for name in ("easy", "hard", "telling", "unscored", "unseen", "invalid")
]
TRIED = [
    right("easy"), right("easy"), wrong("hard"), wrong("hard"), right("telling"), wrong("telling"),
    tried("unscored", Outcome.UNSCORED), right("invalid"), tried("invalid", Outcome.INCORRECT, None),
]  # fmt: skip


def test_only_questions_that_some_plans_solve_are_kept_in_their_order() -> None:
    found = choose_questions(ASKED, TRIED, 0.1, 0.9)
    assert [p.id for p in found.problems] == ["telling", "invalid"]
    assert found.counts == {"questions": 6, "kept": 2, "too_hard": 1, "too_easy": 1, "untried": 2}


def test_bounds_belong_to_the_range() -> None:
    kept = choose_questions(ASKED, TRIED, 0.5, 1.0).problems
    assert [p.id for p in kept] == ["easy", "telling", "invalid"]
    assert [p.id for p in choose_questions(ASKED, TRIED, 0.51, 0.99).problems] == []


def test_an_unscored_plan_does_not_count() -> None:
    assert pass_rates([right("a"), tried("a", Outcome.UNSCORED), wrong("a")]) == {"a": 0.5}


@pytest.mark.parametrize("wrong_range", [[0.9, 0.1], [-0.1, 0.5], [0.1, 1.1]])
def test_a_range_that_is_none_is_refused(wrong_range: list[float]) -> None:
    with pytest.raises(ValidationError, match="is no range of shares"):
        PlannerGrpoConfig.model_validate({"pass_rate": wrong_range})


def test_which_questions_are_asked_is_not_in_the_training_key() -> None:
    chosen = PlannerGrpoConfig(pass_rate=(0.1, 0.9))
    assert chosen.content_id == PlannerGrpoConfig().content_id
    assert "lr" in chosen.content_id
