"""Every exemplar is right by the verifier, and a few-shot prompt has the layout that its stops expect."""

import re

import pytest
import yaml

from reasoner.errors import ConfigurationError
from reasoner.problems import word_problems
from reasoner.prompts import few_shot_prompt, few_shot_turns, load_exemplars
from reasoner.prompts.files import FOLDER
from reasoner.records import Strategy
from reasoner.sandbox import run_programs
from reasoner.verifiers.numbers import extract_number, numbers_equal, parse_number, read_gold
from reasoner.verifiers.solutions import program_of

SETS = ("gsm", "demo")
CASES = [(name, number) for name in SETS for number in range(8)]
TOKENS = {Strategy.COT: 30, Strategy.SUB: 37, Strategy.POT: 16}


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_eight_different_questions_solved_in_every_strategy(name):
    exemplars = load_exemplars(name).exemplars
    assert len({item.question for item in exemplars}) == 8
    assert all(item.solution(strategy) for item in exemplars for strategy in Strategy)


@pytest.mark.parametrize(("name", "number"), CASES)
@pytest.mark.parametrize("strategy", [Strategy.COT, Strategy.SUB])
def test_prose_solutions_state_the_answer(name, number, strategy):
    item = load_exemplars(name).exemplars[number]
    solution = item.solution(strategy)
    assert numbers_equal(extract_number(solution), parse_number(item.answer))
    assert solution.splitlines()[-1] == f"The answer is {item.answer}."
    assert read_gold(item.answer, "plain") == item.answer


@pytest.mark.parametrize(("name", "number"), CASES)
@pytest.mark.parametrize("strategy", [Strategy.COT, Strategy.SUB])
def test_every_equation_in_the_prose_holds(name, number, strategy):
    for line in load_exemplars(name).exemplars[number].solution(strategy).splitlines():
        for left, right in equations(line):
            assert eval(left) == right, line


def equations(line: str) -> list[tuple[str, float]]:
    found = re.findall(r"(\d+(?: [-+*/] \d+)+) = \$?(\d+)", line)
    return [(left, float(right)) for left, right in found]


@pytest.mark.sandbox
@pytest.mark.parametrize("name", SETS)
def test_programs_compute_the_answer(name):
    items = load_exemplars(name).exemplars
    programs = [program_of(item.solution(Strategy.POT)) for item in items]
    results = run_programs(programs, timeout=10.0)
    assert [(result.status.value, result.value) for result in results] == [
        ("ok", repr(float(item.answer))) for item in items
    ]


@pytest.mark.parametrize("name", SETS)
def test_no_solution_or_question_holds_what_ends_a_generation(name):
    for item in load_exemplars(name).exemplars:
        for text in (item.question, *(item.solution(strategy) for strategy in Strategy)):
            assert "\n\n" not in text
            assert not any(stop in text for stop in ("\nProblem:", "\nQuestion:", "\nInput:"))


def test_the_gsm_solutions_take_two_to_five_steps():
    for item in load_exemplars("gsm").exemplars:
        steps = len(item.solution(Strategy.SUB).splitlines()) - 1
        assert 2 <= steps <= 5


def test_the_demo_solutions_are_short():
    exemplars = load_exemplars("demo").exemplars
    for strategy, tokens in TOKENS.items():
        # about 0.6 tokens a character in arithmetic prose, measured with SmolLM2's tokenizer
        mean = sum(len(item.solution(strategy)) for item in exemplars) / len(exemplars)
        assert mean < tokens * 3.2
    assert all(len(item.solution(Strategy.POT).splitlines()) == 3 for item in exemplars)


def test_the_demo_examples_are_no_generated_questions():
    for item in load_exemplars("demo").exemplars:
        assert not any(name in item.question.split() for name in word_problems.NAMES)


def test_a_prompt_is_exemplars_then_the_question():
    prompt = few_shot_prompt(load_exemplars("demo"), Strategy.POT, "How much is 2 and 2?", 2)
    assert prompt == (
        "Problem: Sam has 3 boxes with 4 pens in each box, and 2 loose pens. "
        "How many pens does Sam have in all?\n"
        "Solution: ```python\nanswer = 3 * 4 + 2\n```\n\n"
        "Problem: Tom has 21 cards and gives 9 of them to Nina. How many cards does Tom have left?\n"
        "Solution: ```python\nanswer = 21 - 9\n```\n\n"
        "Problem: How much is 2 and 2?\nSolution:"
    )


def test_prompts_of_two_questions_share_all_but_the_question():
    exemplars = load_exemplars("gsm")
    first = few_shot_prompt(exemplars, Strategy.SUB, "first?", 8)
    second = few_shot_prompt(exemplars, Strategy.SUB, "second?", 8)
    assert first.removesuffix("first?\nSolution:") == second.removesuffix("second?\nSolution:")


def test_no_shots_leave_the_question_and_braces_and_empty_lines_survive():
    prompt = few_shot_prompt(load_exemplars("gsm"), Strategy.COT, "What is {x} {{y}}?\n\nNone of it.", 0)
    assert prompt == "Problem: What is {x} {{y}}?\nNone of it.\nSolution:"


def test_the_hash_follows_the_content_and_not_the_name(tmp_path):
    gsm = load_exemplars("gsm")
    copy = tmp_path / "mine.yaml"
    copy.write_text((FOLDER / "exemplars" / "gsm.yaml").read_text())
    assert load_exemplars(str(copy)).content_hash == gsm.content_hash
    copy.write_text(copy.read_text().replace("A bakery", "One bakery"))
    assert load_exemplars(str(copy)).content_hash != gsm.content_hash


def test_errors_name_what_is_wrong(tmp_path):
    with pytest.raises(ConfigurationError, match="did you mean 'gsm'"):
        load_exemplars("gsn")
    with pytest.raises(ConfigurationError, match=r"no file .*none\.yaml"):
        load_exemplars(str(tmp_path / "none.yaml"))
    broken = tmp_path / "x.yaml"
    broken.write_text("- question: a\n  answer: '1'\n  cott: b\n")
    with pytest.raises(ConfigurationError, match=r"0\.cott"):
        load_exemplars(str(broken))
    broken.write_text("- question: a\n  answer: '1'\n  cot: b\n")
    with pytest.raises(ConfigurationError, match="example 1 has no 'pot' solution"):
        few_shot_prompt(load_exemplars(str(broken)), Strategy.POT, "q", 1)
    with pytest.raises(ConfigurationError, match="shots=9"):
        few_shot_prompt(load_exemplars("gsm"), Strategy.POT, "q", 9)
    broken.write_text("a: [")
    with pytest.raises(ConfigurationError, match="not YAML"):
        load_exemplars(str(broken))


def test_each_task_of_gsm_asks_for_what_its_solutions_end_with():
    gsm = load_exemplars("gsm")
    for strategy, word, line in (
        (Strategy.COT, "The answer is", -1),
        (Strategy.SUB, "The answer is", -1),
        (Strategy.POT, "answer", -2),  # the last one closes the block
    ):
        assert word in gsm.tasks[strategy]
        assert all(word in item.solution(strategy).splitlines()[line] for item in gsm.exemplars)


def test_a_task_stands_in_a_conversation_and_not_in_a_plain_text(tmp_path):
    bare = load_exemplars("gsm")
    path = tmp_path / "mine.yaml"
    items = [{"question": "How many?", "answer": "2", "cot": "The answer is 2."}]
    path.write_text(yaml.safe_dump({"exemplars": items, "tasks": {"cot": "Be brief."}}))
    mine = load_exemplars(str(path))
    turns = few_shot_turns(mine, Strategy.COT, "And now?", 1)
    assert [turn["content"] for turn in turns] == [
        "Problem: How many?\nBe brief.", "The answer is 2.", "Problem: And now?\nBe brief."
    ]  # fmt: skip
    assert "Be brief" not in few_shot_prompt(mine, Strategy.COT, "And now?", 1)
    path.write_text(yaml.safe_dump(items))
    assert load_exemplars(str(path)).content_hash != mine.content_hash != bare.content_hash


def test_a_task_for_no_strategy_is_told(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"exemplars": [], "tasks": {"tables": "Draw."}}))
    with pytest.raises(ConfigurationError, match="tables"):
        load_exemplars(str(path))
