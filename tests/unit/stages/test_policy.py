"""What a policy is asked, and who picks the strategy: wrong if a picked name is not the one that is asked for, if a
second turn depends on the gold, or if prompts of a free choice change.
"""

from pathlib import Path
from typing import Any

import pytest

from reasoner.config.smart import AskConfig, Choice, EngineConfig, Epoch2Config, PromptConfig, SamplingConfig
from reasoner.engines.pool import EnginePool
from reasoner.errors import EngineError
from reasoner.home import Home
from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.parse import parse_response
from reasoner.records import GenerationRequest, Outcome, Problem, Strategy, Verdict
from reasoner.stages import policy
from reasoner.stages.generation import FILE
from reasoner.store.rows import read_rows
from reasoner.workbench import ModelFolder, Workbench

COT, SUB, POT = Strategy.COT, Strategy.SUB, Strategy.POT
ALL = (COT, SUB, POT)
PROBLEMS = [Problem.make(f"What is {n} + 1?", str(n + 1), "toy") for n in range(60)]
asked: list[GenerationRequest] = []


def answering(request: GenerationRequest) -> str:
    """A model that wants the program, takes the last choice where it is limited, and solves nothing."""
    asked.append(request)
    if request.sampling.choices:
        return request.sampling.choices[-1]
    return " done" if request.prompt.endswith(":") else "Program of Thought: done"


def confused(request: GenerationRequest) -> str:
    return "Haiku:"


@pytest.fixture
def bench(tmp_path: Path) -> Any:
    asked.clear()
    with EnginePool(tmp_path / "logs") as engines:
        yield Workbench(Home(tmp_path / "home"), engines, tmp_path, tmp_path, lambda *_: None)


def how(choice: Choice, samples: int = 1, *, script: str = "answering", **prompt: Any) -> AskConfig:
    engine = EngineConfig(kind="scripted", options={"script": f"tests.unit.stages.test_policy:{script}"})
    return AskConfig(
        decoding=SamplingConfig(temperature=0.7, stop=("x",)), samples=samples, choice=choice, strategies=ALL,
        prompt=PromptConfig(**prompt), engine=engine,
    )  # fmt: skip


def attempt(owner: Problem, strategy: Strategy | None, right: bool, text: str = "7") -> Attempt:
    verdict = Verdict(Outcome.CORRECT if right else Outcome.INCORRECT, "x")
    return Attempt(owner.id, strategy, 1, (), 0, text, text, verdict, "stop")


def rows(bench: Workbench, asks: AskConfig, turn1: list[Attempt] | None = None, seed: int = 0) -> list[dict]:
    model = ModelFolder(bench.work, "f", "m")
    policy.answer(bench.work, bench, PROBLEMS, turn1, model, asks, seed)
    return read_rows(bench.work / FILE)


def names(found: list[dict]) -> list[Strategy | None]:
    return [parse_response(row["text"]).strategy for row in found]


def test_a_free_choice_asks_once_and_forces_nothing(bench: Workbench) -> None:
    assert names(rows(bench, how("policy"))) == [POT] * 60
    assert len(asked) == 60 and all(r.prompt.endswith("Assistant:\n") for r in asked)
    assert all(not r.sampling.choices for r in asked)


def test_each_strategy_is_forced_in_turn(bench: Workbench) -> None:
    found = rows(bench, how("each", 6))
    assert names(found) == [COT, SUB, POT, COT, SUB, POT] * 60
    assert found[0]["text"] == "Chain of Thought: done" and found[0]["strategy"] == ""
    assert [r.prompt.rpartition("\n")[2] for r in asked[:2]] == ["Chain of Thought:", "Sub-questioning:"]


def test_a_random_strategy_is_drawn_by_seed_and_question(bench: Workbench) -> None:
    first = names(rows(bench, how("random")))
    assert {first.count(s) > 8 for s in ALL} == {True}
    assert names(rows(bench, how("random"))) == first != names(rows(bench, how("random"), seed=1))
    three = names(rows(bench, how("random", 3)))
    assert all(set(three[i : i + 3]) == set(ALL) for i in range(0, 180, 3)) and three[::3] == first


def test_the_untried_are_offered_and_one_of_them_is_what_the_answer_begins_with(bench: Workbench) -> None:
    turn1 = [attempt(p, POT, right=False) for p in PROBLEMS]
    found = rows(bench, how("untried"), turn1)
    assert names(found) == [SUB] * 60 and found[0]["text"] == "Sub-questioning: done"
    first, second = asked[0], asked[60]
    assert first.sampling.choices == ("Chain of Thought:", "Sub-questioning:")
    assert (first.sampling.temperature, first.sampling.stop) == (0.7, ())
    assert second.sampling.choices == () and second.sampling.stop == ("x",)
    assert second.prompt == first.prompt + "Sub-questioning:"


def test_nothing_is_asked_twice(bench: Workbench) -> None:
    turn1 = [attempt(p, POT, right=False) for p in PROBLEMS]
    once, calls = rows(bench, how("untried"), turn1), len(asked)
    assert rows(bench, how("untried"), turn1) == once and len(asked) == calls


def test_an_engine_that_ignores_the_limit_is_an_error(bench: Workbench) -> None:
    with pytest.raises(EngineError, match="Haiku"):
        rows(bench, how("untried", script="confused"))


@pytest.mark.parametrize("choice", ["policy", "untried", "each", "random"])
def test_a_second_turn_never_looks_at_the_gold(bench: Workbench, choice: Choice) -> None:
    """Right and wrong first answers are asked again in the same words."""
    wrong, right = ([attempt(p, COT, right=r) for p in PROBLEMS] for r in (False, True))
    again = rows(bench, how(choice), wrong)
    assert rows(bench, how(choice), right) == again and len(again) == 60
    assert all(row["turn"] == 2 and row["tried"] == ["cot"] for row in again)


def test_after_a_response_without_a_strategy_nothing_is_named_as_tried(bench: Workbench) -> None:
    found = rows(bench, how("policy"), [attempt(p, None, right=False) for p in PROBLEMS])
    assert all(row["turn"] == 2 and row["tried"] == [] for row in found)
    assert "without success: none" in asked[0].prompt


@pytest.mark.parametrize(("context", "shown"), [("name", False), ("full", True)])
def test_the_context_of_a_second_turn(bench: Workbench, context: str, shown: bool) -> None:
    turn1 = [attempt(p, COT, right=False, text="" if n else "my wrong way") for n, p in enumerate(PROBLEMS)]
    rows(bench, how("policy", refine_context=context), turn1)
    assert "without success: Chain of Thought" in asked[0].prompt
    assert ("my wrong way" in asked[0].prompt) is shown
    assert ("(no solution)" in asked[1].prompt) is shown


def test_training_turns_ask_for_what_failed(bench: Workbench) -> None:
    """Turn 2 of sampling: one prompt a failed strategy, none where every strategy was accepted."""
    model, pool = ModelFolder(bench.work, "f", "m"), PROBLEMS[:2]
    turn1 = [attempt(pool[0], COT, right=False), attempt(pool[1], POT, right=True)]
    made = policy.sample(bench.work, bench, pool, turn1, model, how("untried", 2), Epoch2Config(), 0, 2)
    found = read_rows(bench.work / FILE)
    assert [(r["problem_id"], r["tried"], r["index"]) for r in found] == [
        (pool[0].id, ["cot"], 0), (pool[0].id, ["cot"], 1)
    ]  # fmt: skip
    assert made["queue"]["queued"] == 1 and names(found) == [POT, POT]
    first = policy.sample(bench.work, bench, pool, None, model, how("each", 3), Epoch2Config(), 0, 2)
    assert "queue" not in first and names(read_rows(bench.work / FILE)) == [COT, SUB, POT] * 2
