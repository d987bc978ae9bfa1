"""What a record becomes for the trainer: the same prompt that the policy is asked with, under either refine context."""

from pathlib import Path

import pytest

from reasoner.config.smart import AskConfig, EngineConfig, PromptConfig, SamplingConfig
from reasoner.methods.smart.records import REFINE, SolutionRecord
from reasoner.prompts import Attempt, ChatRenderer
from reasoner.records import Problem, Strategy
from reasoner.stages import policy
from reasoner.stages.training import PARITY_PROMPTS, examples, parity_questions

OWNER = Problem.make("None of 3 boxes is full. How many are?", "0", "toy")


@pytest.mark.parametrize("context", ["name", "full"])
def test_training_sees_the_prompt_that_the_policy_is_asked_with(tmp_path: Path, context: str) -> None:
    prompt = PromptConfig(refine_context=context)  # type: ignore[arg-type]
    record = SolutionRecord(
        OWNER.id, OWNER.question, Strategy.POT, "answer = 0", (Strategy.COT,), ("It is 3.",), REFINE
    )
    (example,) = examples([record], prompt, ChatRenderer(tmp_path))
    how = AskConfig(
        decoding=SamplingConfig(), samples=1, choice="policy", strategies=tuple(Strategy), prompt=prompt,
        engine=EngineConfig(kind="scripted"),
    )  # fmt: skip
    (ask,) = policy.asks([OWNER], {OWNER.id: [(Attempt(Strategy.COT, "It is 3."),)]}, how, tmp_path, 0)
    assert example.prompt == ask.prompt and ("It is 3." in ask.prompt) is (context == "full")
    assert example.completion.startswith("Program of Thought: answer = 0")


def test_a_merge_after_few_records_is_still_compared_on_enough_questions() -> None:
    assert parity_questions(str(i) for i in range(20)) == [str(i) for i in range(PARITY_PROMPTS)]
    few = parity_questions(["a", "a", "b"])
    assert few[:2] == ["a", "b"] and len(set(few)) == len(few) == PARITY_PROMPTS
