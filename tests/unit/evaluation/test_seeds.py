"""Runs of several seeds as one arm.

Wrong if a run's accuracy is told wrongly, if seeds pass for further questions in the test, or if runs with other
problems are joined without a word.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from flows.commands.compare import compare as compare_command
from reasoner.errors import DataError, UsageError
from reasoner.evaluation.answered import Answered, answered_from_rows
from reasoner.evaluation.comparison import compare
from reasoner.evaluation.seeds import find_arm, together
from reasoner.evaluation.words import lines
from reasoner.home import Home
from reasoner.statistics import mcnemar_exact


def run(name: str, scores: list[bool | None], *, first: int = 0, dataset: str = "sums") -> Answered:
    rows = [
        {"problem_id": f"{name}-{i}", "question": f"What is {i} + 1?", "gold": str(i + 1), "correct": score}
        for i, score in enumerate(scores, first)
    ]
    return answered_from_rows(name, rows, dataset)


def test_each_run_its_mean_and_its_spread_are_told() -> None:
    a = together([run(f"a{k}", [True] * right + [False] * (10 - right)) for k, right in enumerate((4, 5, 6))])
    b = together([run("b0", [True] * 8 + [False] * 2), run("b1", [None] + [True] * 8 + [False])])
    spread = a.spreads["sums"]
    assert [(seed.name, seed.accuracy) for seed in spread.runs] == [("a0", 0.4), ("a1", 0.5), ("a2", 0.6)]
    assert (spread.mean, spread.deviation) == pytest.approx((0.5, 0.1))
    assert [seed.n for seed in b.spreads["sums"].runs] == [10, 9]
    found = compare(a.answered, b.answered)
    one = found.sets[0]
    assert (one.n, one.samples, one.test) == (10, 3, "cluster bootstrap") and one.accuracy_a == 0.5
    assert [flip.a for flip in one.gained][-1] == pytest.approx(2 / 3) and len(one.gained) == 5
    said = list(lines(found, 0, a.spreads, b.spreads))
    assert "  A  40.0% of 10 problems  a0" in said
    assert "  A  50.0% mean of 3 runs, standard deviation 10.0 points (40.0% to 60.0%)" in said
    assert any(line.startswith("  B  88.9% of 9 problems  b1") for line in said)


def test_a_single_run_is_compared_as_before() -> None:
    a, b = run("a", [True] * 5 + [False] * 15), run("b", [True] * 12 + [False] * 8)
    arms = together([a]), together([b])
    found = compare(arms[0].answered, arms[1].answered)
    assert found == compare(a, b) and found.sets[0].p == mcnemar_exact(0, 7)
    assert list(lines(found, 3, arms[0].spreads, arms[1].spreads)) == list(lines(found, 3))


def test_runs_with_other_problems_are_told() -> None:
    ten, later = run("a", [True] * 10), run("b", [True] * 10, first=2)
    with pytest.raises(DataError, match="--shared compares the 8 that both have"):
        together([ten, later])
    third = run("c", [False] * 10, first=4)
    arm = together([ten, later, third], shared=True)
    assert [seed.n for seed in arm.spreads["sums"].runs] == [6, 6, 6]
    assert {len(one.scores) for one in arm.answered.sets["sums"].values()} == {3}
    with pytest.raises(DataError, match="different data sets"):
        together([ten, run("d", [True] * 10, dataset="more")])


def test_runs_are_found_by_words_with_commas(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    files = [tmp_path / name for name in ("one.jsonl", "two.jsonl", "one,two.jsonl")]
    for file in files:
        file.write_text("".join(json.dumps({"id": i, "correct": True}) + "\n" for i in range(4)))
    assert find_arm(f"{files[0]}, {files[1]}", home).names == (str(files[0]), str(files[1]))
    assert find_arm(str(files[2]), home).names == (str(files[2]),), "a file may have a comma in its name"
    with pytest.raises(UsageError, match="named twice"):
        find_arm(f"{files[0]},{files[0]}", home)


def test_the_command_takes_several_runs_a_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for i, right in enumerate((10, 12, 25, 27)):
        files.append(str(tmp_path / f"{i}.jsonl"))
        rows = [{"id": k, "correct": k < right, "dataset": "sums"} for k in range(40)]
        Path(files[-1]).write_text("".join(json.dumps(row) + "\n" for row in rows))
    a, b = ",".join(files[:2]), ",".join(files[2:])
    compare_command(a, b, json=True)
    row = json.loads(capsys.readouterr().out)
    assert [side["sums"]["mean"] for side in row["seeds"]] == pytest.approx([11 / 40, 26 / 40])
    assert row["sets"][0]["samples"] == 2 and row["sets"][0]["p"] < 0.001
    compare_command(a, b)
    assert "B  65.0% mean of 2 runs" in capsys.readouterr().out


def test_seeds_are_no_further_questions() -> None:
    """Equal arms that differ on each question, the same way in all seeds.

    Pooled, as if each seed brought questions of its own, McNemar's test cries wolf; clustered it rejects in about 5 %.
    """
    random = np.random.default_rng(5)
    simulations, n, clustered, pooled = 300, 60, 0, 0
    for _ in range(simulations):
        sides = random.beta(0.3, 0.3, (2, n))
        a, b = ((random.random((3, n)) < chances) for chances in sides)
        arms = [
            together([run(f"{side}{k}", row.tolist()) for k, row in enumerate(rows)]).answered
            for side, rows in (("a", a), ("b", b))
        ]
        clustered += compare(*arms, resamples=400).sets[0].p < 0.05
        pooled += mcnemar_exact(int((a & ~b).sum()), int((b & ~a).sum())) < 0.05
    assert clustered / simulations < 0.09 and pooled / simulations > 0.12
