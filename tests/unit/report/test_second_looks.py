"""What a second turn adds: after attempts that were cut at the token limit, and after those that came to their end."""

from dataclasses import replace

import pytest

from reasoner.methods.multiturn.episode import Episode, Judged
from reasoner.records import Outcome, Verdict
from reasoner.report import second_looks
from tests.unit.methods.multiturn.making import episode


def looked(
    problem: str, r1: int, r2: int, answers: tuple[str, str] = ("1", "1"), cut: bool = False
) -> Episode:
    """An episode whose turns give these answers."""
    made = episode(problem, 0, r1, r2)
    assert made.refinement is not None

    def judged(reward: int, answer: str) -> Judged:
        return Judged(Verdict(Outcome.CORRECT if reward else Outcome.INCORRECT, "test", answer))

    first = replace(made.attempt, judged=judged(r1, answers[0]), finish="length" if cut else "stop")
    return replace(made, attempt=first, refinement=replace(made.refinement, judged=judged(r2, answers[1])))


def test_a_difference_that_cut_attempts_make_is_told_from_self_correction() -> None:
    cut = [looked(f"c{i}", 0, int(i < 20), ("", "7"), cut=True) for i in range(40)]
    whole = [looked(f"w{i}", int(i < 30), int(i < 30)) for i in range(60)]
    found = second_looks.measure(cut + whole)
    assert (found["n"], found["cut"], found["mended"], found["mended_cut"]) == (100, 40, 20, 20)
    assert found["whole"]["n"] == 60 and found["whole"]["delta"] == 0.0 and found["changed"] == 0
    assert found["from_cut"] is True
    said = second_looks.sentence("trained", found)
    assert "40 of 100 first attempts were cut" in said and "20 of the 20 problems" in said
    assert "turn 1 0.500, turn 2 0.500, Δ +0.000" in said and said.endswith("raise max_tokens.")


def test_attempts_that_came_to_their_end_and_are_mended_are_self_correction() -> None:
    cut = [looked(f"c{i}", 0, 0, cut=True) for i in range(10)]
    whole = [looked(f"w{i}", 0, int(i < 20), ("1", "2")) for i in range(60)]
    found = second_looks.measure(cut + whole)
    assert found["from_cut"] is False and found["mended_cut"] == 0
    assert found["changed"] == 60 and found["whole"]["i_to_c"] == 20
    assert "raise max_tokens" not in second_looks.sentence("trained", found)


def test_without_a_cut_attempt_only_changed_answers_are_told() -> None:
    found = second_looks.measure([looked("a", 1, 1), looked("b", 0, 1, ("1", "2"))])
    assert second_looks.sentence("trained", found) == (
        "trained: Where the attempt came to its end (N=2), turn 2 gives another answer to 1."
    )


def test_unscored_episodes_are_left_out_and_all_may_be_cut() -> None:
    found = second_looks.measure([episode("a", 0, -1, 1), looked("b", 0, 1, cut=True)])
    assert (found["n"], found["cut"], found["whole"]["n"]) == (1, 1, 0)
    assert second_looks.sentence("trained", found) == (
        "trained: 1 of 1 first attempts were cut at the token limit, and 1 of the 1 problems that turn 2 mends are "
        "among them."
    )


@pytest.mark.parametrize("cut", [True, False])
def test_no_difference_is_never_put_down_to_cut_attempts(cut: bool) -> None:
    found = second_looks.measure([looked(f"p{i}", 0, 0, cut=cut) for i in range(50)])
    assert found["from_cut"] is False


def test_a_small_gain_after_attempts_that_ended_is_not_put_down_to_a_cut_one() -> None:
    """Over all five mended of 500 are above 0, over four of 499 not; still four of the five had come to their end."""
    made = [looked(f"w{i}", 0, int(i < 4), ("1", "2")) for i in range(499)]
    found = second_looks.measure([*made, looked("c", 0, 1, cut=True)])
    assert found["mended"] == 5 and found["mended_cut"] == 1 and found["whole"]["delta_low"] < 0
    assert found["from_cut"] is False


def test_an_answer_written_otherwise_is_the_same_and_none_is_none() -> None:
    made = [looked("a", 1, 1, ("(2,4)", "(2, 4)")), looked("b", 1, 0), looked("c", 1, 0, ("1", "2"))]
    gone = replace(
        made[1].refinement, judged=Judged(Verdict(Outcome.INCORRECT, "test", None)), finish="length"
    )
    made[1] = replace(made[1], refinement=gone)
    found = second_looks.measure(made)
    assert (found["changed"], found["unanswered"], found["cut_again"]) == (1, 1, 1)
    said = second_looks.sentence("trained", found)
    assert "another answer to 1 and none to 1 (it was cut in 1)." in said
