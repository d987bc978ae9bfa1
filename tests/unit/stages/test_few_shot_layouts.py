"""Worked examples as one text or as turns of the model's chat template.

Wrong if an instruct model is shown something other than its own template's turns, if a chat answer is cut at an empty
line, if both layouts show different examples, or if a conversation does not say what a solution must end with.
"""

from pathlib import Path

import pytest

from reasoner.config.smart import FewShotConfig
from reasoner.errors import ConfigurationError
from reasoner.prompts import ChatRenderer, load_exemplars
from reasoner.records import Problem, Strategy
from reasoner.stages.generation import few_shot_asks, few_shot_decoding
from tests.support.tiny_llama import make_byte_model, make_model

PROBLEM = Problem("p1", "How many pens has Ann?\n\nShe has 3 and buys 4.", "7", "test", "p1")


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("chatty") / "model")


@pytest.mark.parametrize("strategy", [Strategy.COT, Strategy.SUB, Strategy.POT])
def test_chat_shows_the_examples_as_turns_of_the_models_template(chatty: Path, strategy: Strategy) -> None:
    config = FewShotConfig(layout="chat", shots=3)
    (ask,) = few_shot_asks([PROBLEM], strategy, config, chatty)
    gsm, turns = load_exemplars("gsm"), []
    task = gsm.tasks[strategy]
    for exemplar in gsm.exemplars[:3]:
        turns += [
            ("user", f"Problem: {exemplar.question}\n{task}"),
            ("assistant", exemplar.solution(strategy)),
        ]
    turns.append(("user", f"Problem: How many pens has Ann?\nShe has 3 and buys 4.\n{task}"))
    messages = [{"role": role, "content": text or ""} for role, text in turns]
    assert ask.prompt == ChatRenderer(chatty).render(messages).text
    assert ask.prompt.endswith("<|im_start|>assistant\n") and not ask.add_special_tokens
    assert few_shot_decoding(config, strategy) == config.decoding, "the end token ends it, no empty line does"


def test_plain_stops_at_the_end_of_a_solution_and_needs_no_model() -> None:
    config = FewShotConfig(shots=2)
    (ask,) = few_shot_asks([PROBLEM], Strategy.COT, config, Path("nowhere"))
    assert ask.prompt.endswith("She has 3 and buys 4.\nSolution:") and ask.add_special_tokens
    assert few_shot_decoding(config, Strategy.COT).stop == (*config.decoding.stop, "\n\n")


def test_a_model_without_a_template_is_shown_plain_turns(tmp_path: Path) -> None:
    model = make_byte_model(tmp_path / "model")
    (ask,) = few_shot_asks([PROBLEM], Strategy.SUB, FewShotConfig(layout="chat", shots=1), model)
    assert ask.prompt.startswith("User:\nProblem: A bakery") and ask.prompt.endswith("Assistant:\n")


def test_too_many_examples_are_told_in_both_layouts(chatty: Path) -> None:
    for layout in ("plain", "chat"):
        config = FewShotConfig.model_validate({"layout": layout, "shots": 9})
        with pytest.raises(ConfigurationError, match="shots=9"):
            few_shot_asks([PROBLEM], Strategy.COT, config, chatty)
