"""The generator: right answers, no fractions, no doubles, the same for the same seed."""

import ast
import re
from collections import Counter

import pytest

from reasoner.config.data import SourceConfig
from reasoner.errors import DataError
from reasoner.ids import content_hash
from reasoner.problems import load_problems, word_problems
from reasoner.records import normalised_text
from reasoner.verifiers.numbers import extract_number

PROBLEMS = word_problems.generate(1600, seed=3)


def by_python(program: str) -> object:
    """The program's value by Python itself, after a look at what it is made of."""
    tree = ast.parse(program)
    names = {type(node).__name__ for node in ast.walk(tree)}
    assert names <= {
        "Module", "Assign", "Name", "Store", "BinOp", "Constant", "Add", "Sub", "Mult", "FloorDiv",
    }  # fmt: skip
    values: dict = {}
    exec(program, values)
    return values["answer"]


def test_programs_give_the_gold_in_python():
    for problem in PROBLEMS:
        assert by_python(problem.tags["program"]) == int(problem.gold), problem


def test_divisions_have_no_rest_and_no_step_is_negative():
    for problem in PROBLEMS:
        program = problem.tags["program"]
        for a, b in re.findall(r"(\d+) // (\d+)", program):
            assert int(a) % int(b) == 0
        assert int(problem.gold) >= 1
        assert int(problem.gold) < 200
        running = 0
        for sign, number in re.findall(r"([-+]?) ?(\d+)", program) if "*" not in program else []:
            running += -int(number) if sign == "-" else int(number)
            assert running >= 0


def test_no_question_comes_twice_and_templates_take_turns():
    assert len({normalised_text(p.question) for p in PROBLEMS}) == len(PROBLEMS)
    assert set(Counter(p.tags["template"] for p in PROBLEMS).values()) == {100}
    assert len(word_problems.TEMPLATES) == 16


def test_every_number_of_a_program_is_in_its_question():
    for problem in PROBLEMS:
        words = problem.question.replace("Two of", "2 of").replace("half of", "2 of")
        there = set(re.findall(r"\d+", words))
        assert set(re.findall(r"\d+", problem.tags["program"])) <= there, problem


def test_the_worked_solution_states_the_gold():
    assert all(extract_number(p.solution) == int(p.gold) for p in PROBLEMS)


def test_the_seed_decides_and_a_larger_count_begins_with_the_same_problems():
    assert word_problems.generate(100, seed=3) == PROBLEMS[:100]
    assert word_problems.generate(100, seed=4) != PROBLEMS[:100]


def test_the_problems_of_version_2_stay_what_they_are():
    # a change here is a new VERSION
    assert word_problems.VERSION == 2
    ids = [p.id for p in word_problems.generate(160, seed=0)]
    assert content_hash(ids, 16) == "834168cfbd8c29e1"


def test_too_many_are_refused(monkeypatch):
    monkeypatch.setattr(word_problems, "TEMPLATES", (lambda draw: (f"{draw.number(1, 3)}?", "1 + 1"),))
    with pytest.raises(DataError, match="after 3 problems"):
        word_problems.generate(4, 0)


def test_a_source_records_generator_version_and_seed():
    source = SourceConfig(name="demo", kind="generated", path="word-problems", limit=20, seed=9)
    loaded = load_problems(source)
    assert [p.dataset for p in loaded.problems] == ["demo"] * 20
    fingerprint = loaded.fingerprint
    assert (fingerprint["generator"], fingerprint["version"], fingerprint["seed"]) == ("word-problems", 2, 9)
    assert load_problems(source) == loaded


def test_a_generator_needs_a_size():
    with pytest.raises(ValueError, match="set `limit`"):
        SourceConfig(name="demo", kind="generated", path="word-problems")
