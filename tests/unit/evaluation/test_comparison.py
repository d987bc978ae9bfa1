"""Comparing two models. Wrong if a planted difference is told the wrong way round, if other problems are compared
without a word, if a flip is missing, or if an unscored answer counts."""

import json
from pathlib import Path

import pytest

from reasoner.errors import DataError, UsageError
from reasoner.evaluation.answered import Answered, answered_from_rows
from reasoner.evaluation.comparison import compare
from reasoner.evaluation.sources import find
from reasoner.evaluation.words import lines, sentence
from reasoner.home import Home
from reasoner.statistics import holm, mcnemar_exact
from reasoner.statistics.bootstrap import cluster_test
from tests.support.report_runs import Runs


def rows(name: str, scores: list[bool | None], dataset: str = "sums") -> Answered:
    made = [
        {"problem_id": f"{dataset}{i}", "question": f"What is {i} + 1?", "gold": str(i + 1), "correct": score,
         "answer": str(i + 1) if score else "0", "dataset": dataset}
        for i, score in enumerate(scores)
    ]  # fmt: skip
    return answered_from_rows(name, made)


def test_a_better_model_is_told_in_words_with_its_flips() -> None:
    a = rows("a", [True] * 40 + [False] * 60)
    b = rows("b", [False] * 2 + [True] * 58 + [False] * 40)
    found = compare(a, b)
    one = found.sets[0]
    assert (len(one.gained), len(one.lost), one.n) == (20, 2, 100)
    assert one.difference == pytest.approx(0.18) and one.p == pytest.approx(mcnemar_exact(2, 20))
    assert one.low is not None and one.high is not None and 0 < one.low < 0.18 < one.high
    assert {flip.problem_id for flip in one.lost} == {"sums0", "sums1"} and one.lost[
        0
    ].text == "What is 0 + 1?"
    assert one.lost[0].answer_b == "0" and one.lost[0].gold == "1"
    said = sentence(one)
    assert said.startswith("B is better by 18.0 points (95 %: ") and "20 problems gained, 2 lost" in said
    assert sentence(compare(b, a).sets[0]).startswith("A is better by 18.0 points")
    shown = list(lines(found, flips=3))
    assert any("and 17 more" in line for line in shown) and any("McNemar" in line for line in shown)


def test_chance_is_called_chance_and_unscored_is_left_out() -> None:
    a = rows("a", [True] * 50 + [False] * 50)
    b = rows("b", [None] + [True] * 50 + [False] * 49)
    one = compare(a, b).sets[0]
    assert (one.n, one.excluded, len(one.gained), len(one.lost)) == (99, 1, 1, 0)
    assert "maybe by chance" in sentence(one)
    assert sentence(compare(a, a).sets[0]).startswith("A and B are equal")
    with pytest.raises(DataError, match="scored on both sides"):
        compare(a, rows("c", [None] * 100))


def test_other_problems_are_an_error_with_a_way_out() -> None:
    a, b = rows("a", [True] * 10), rows("b", [True] * 12)
    with pytest.raises(
        DataError, match=r"2 only in b \(first: 'What is 10 \+ 1\?'\); --shared compares the 10"
    ):
        compare(a, b)
    assert compare(a, b, shared=True).sets[0].n == 10
    with pytest.raises(DataError, match="no data set in common"):
        compare(a, Answered("c", {"x": b.sets["sums"], "y": b.sets["sums"]}))


def test_the_same_problems_under_another_name_are_recognised() -> None:
    a, b = rows("a", [True] * 9, "gsm8k"), rows("b", [False] * 9, "gsm8k_test")
    assert compare(a, b).sets[0].n == 9 and len(compare(a, b).sets[0].lost) == 9


def test_several_samples_are_one_cluster_a_problem() -> None:
    def sampled(name: str, rights: list[int]) -> Answered:
        made = [
            {"problem_id": str(i), "index": k, "outcome": "correct" if k < right else "incorrect"}
            for i, right in enumerate(rights)
            for k in range(4)
        ]
        return answered_from_rows(name, made)

    one = compare(
        sampled("a", [1] * 30 + [2] * 30), sampled("b", [2] * 20 + [1] * 10 + [4] * 10 + [2] * 20)
    ).sets[0]
    assert one.test == "cluster bootstrap" and one.samples == 4 and len(one.gained) == 30 and not one.lost
    assert one.difference == pytest.approx((20 * 0.25 + 10 * 0.5) / 60) and one.p < 0.001
    assert one.low is not None and one.low > 0
    again = compare(sampled("a", [1] * 30), sampled("b", [1] * 30)).sets[0]
    assert again.p == 1.0 and again.difference == 0


def test_p_is_adjusted_over_data_sets() -> None:
    def two(name: str, first: list[bool | None], second: list[bool | None]) -> Answered:
        return Answered(name, {**rows(name, first, "x").sets, **rows(name, second, "y").sets})

    found = compare(
        two("a", [False] * 30, [False] * 30), two("b", [True] * 6 + [False] * 24, [True] * 3 + [False] * 27)
    )
    ps = [one.p for one in found.sets]
    assert [one.p_holm for one in found.sets] == pytest.approx(holm(ps))
    assert "after Holm over 2 data sets" in sentence(found.sets[0], 2)


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"outcome": "correct"}, "row 1: has no problem_id"),
        ({"id": "p"}, "has no outcome"),
        ({"id": "p", "correct": 1}, "true, false or null, not 1"),
        ({"id": "p", "outcome": "great"}, "great"),
    ],
)
def test_an_unusable_row_is_named(row: dict, why: str) -> None:
    with pytest.raises(DataError, match=why):
        answered_from_rows("f", [row])


def test_a_sample_twice_is_refused() -> None:
    with pytest.raises(DataError, match="row 2: problem p has sample 0 twice"):
        answered_from_rows("f", [{"id": "p", "correct": True}] * 2)


def test_files_are_found_and_unknown_words_are_told(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    file = tmp_path / "a.jsonl"
    file.write_text("".join(json.dumps({"id": i, "correct": i % 2 == 0}) + "\n" for i in range(4)))
    assert len(find(str(file), home).sets[""]) == 4
    with pytest.raises(UsageError, match=r"no run 'nothing'.*evaluation/DIGEST"):
        find("nothing", home)


@pytest.mark.parametrize(("pipeline", "right"), [("mlmt-math", 6), ("archer-math", 2)])
def test_a_multi_turn_run_is_its_trained_turn(tmp_path: Path, pipeline: str, right: int) -> None:
    """ArCHer trains turn 1, the others end with turn 2."""
    run = Runs(tmp_path).multiturn(8, pipeline=pipeline)
    (found,) = find(f"{run}@trained", Home(tmp_path)).sets.values()
    assert [answers.scores for answers in found.values()].count([1.0]) == right and len(found) == 8


def test_degenerate_clusters_do_not_pass_for_evidence() -> None:
    assert cluster_test([[0.0]], [[1.0]]).p is None
    assert cluster_test([[0.0]] * 2, [[1.0]] * 2).p == 0.5
    with pytest.raises(UsageError):
        cluster_test([[1.0]], [])
    with pytest.raises(UsageError):
        cluster_test([[]], [[1.0]])
