"""benchmarks/split_gain.py finds what a question tells of splitting, and nothing where it tells nothing."""

import gzip
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from reasoner.methods.planner.episodes import run_row
from tests.support.benchmarks import benchmarks, program  # noqa: F401 (a fixture)
from tests.unit.methods.planner.world import ATOMIC, Script, executor


def run_of(problem: str, right: bool, plan: str = ATOMIC) -> dict[str, Any]:
    """A run of the problem whose worker answers rightly or not."""
    script = Script(lambda _: f'{{"final_answer": {5 if right else 6}}}')
    made = executor(script).execute_pipeline(f"How many {problem}?", plan, problem)
    return run_row(f"How many {problem}?", "5", 0, made)


def drawn(n: int, seed: int, rule: Callable[[str, random.Random], int]) -> tuple[list[str], list[int]]:
    """Questions, half of which ask for a discount, and what splitting gains on each."""
    chance = random.Random(seed)
    topics = ["a discount on shoes", "the eggs of a hen"]
    questions = [f"How much is {chance.choice(topics)} at {chance.randint(2, 99)} coins?" for _ in range(n)]
    return questions, [rule(question, chance) for question in questions]


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[float("discount" in text), float(len(text) % 2)] for text in texts]


def told(question: str, chance: random.Random) -> int:
    return chance.choice([1, 1, 0]) if "discount" in question else chance.choice([-1, -1, 0])


def untold(_: str, chance: random.Random) -> int:
    return chance.choice([1, -1, -1, 0])


@pytest.mark.parametrize("model", ["ridge", "boosted trees"])
def test_a_gain_that_the_question_tells_is_found(model: str) -> None:
    found = program("split_gain").measure(drawn(200, 0, told), drawn(300, 1, told), embed)[model]
    gains = drawn(300, 1, told)[1]
    assert found["gained"] > 0.9 * gains.count(1) and found["correlation"] > 0.6
    assert found["gained"] <= found["gained_at_best"] <= gains.count(1)


@pytest.mark.parametrize("model", ["ridge", "boosted trees"])
def test_a_gain_that_the_question_does_not_tell_is_not_found(model: str) -> None:
    found = program("split_gain").measure(drawn(200, 0, untold), drawn(300, 1, untold), embed)[model]
    assert found["gained"] < 5 and abs(found["correlation"]) < 0.15


def test_runs_are_paired_by_problem_and_read_packed_or_not(tmp_path: Path) -> None:
    atomic = [run_of("a", True), run_of("b", False), run_of("c", True), run_of("d", True)]
    split = [run_of("b", True), run_of("a", True), run_of("d", True, plan="no plan")]
    (tmp_path / "runs-atomic.jsonl").write_text("".join(json.dumps(row) + "\n" for row in atomic))
    with gzip.open(tmp_path / "runs-decomposed.jsonl.gz", "wt") as lines:
        lines.write("".join(json.dumps(row) + "\n" for row in split))
    questions, whole, parts, invalid = program("split_gain").gains(tmp_path)
    assert questions == [atomic[0]["question"], atomic[1]["question"]]
    assert (whole, parts, invalid) == ([1, 0], [1, 1], 1), "c was not split, d has no valid plan"
