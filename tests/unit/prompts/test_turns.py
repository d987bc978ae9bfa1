"""The prompts of an episode: who sees what."""

from pathlib import Path

import pytest

from reasoner.errors import ConfigurationError
from reasoner.prompts.turns import load_turns

MATH = {"question": "What is {{ 2 }} + <b>?", "function": "", "tests": []}
CODE = {"question": "Double it.", "function": "double", "tests": ["assert double(2) == 4"]}


@pytest.mark.parametrize("name", ["math", "code"])
def test_who_sees_what(name):
    turns, facts = load_turns(name), MATH if name == "math" else CODE
    first = turns.attempt_turn(facts)[0]["content"]
    advice = turns.feedback_turn(facts, "MY ATTEMPT", "")[0]["content"]
    second = turns.refine_turn(facts, "MY ATTEMPT", "MY ADVICE")[0]["content"]
    assert all(facts["question"] in text for text in (first, advice, second)), "braces in a problem stay"
    assert "MY ATTEMPT" not in first and "MY ATTEMPT" in advice and "MY ATTEMPT" in second
    assert "MY ADVICE" in second and "MY ADVICE" not in advice
    assert "MY ADVICE" not in turns.refine_turn(facts, "MY ATTEMPT", "")[0]["content"]


def test_math_asks_for_a_box():
    turns = load_turns("math")
    for text in (
        turns.attempt_turn(MATH),
        turns.refine_turn(MATH, "a", "b"),
        turns.refine_turn(MATH, "a", ""),
    ):
        assert "\\boxed{}" in text[0]["content"]
    assert "boxed" not in turns.feedback_turn(MATH, "a")[0]["content"]


def test_code_names_the_function_and_shows_tests_to_the_solver_only():
    turns = load_turns("code")
    first, second = turns.attempt_turn(CODE)[0]["content"], turns.refine_turn(CODE, "a", "b")[0]["content"]
    advice = turns.feedback_turn(CODE, "a")[0]["content"]
    assert all("`double`" in text for text in (first, second, advice))
    assert CODE["tests"][0] in first and CODE["tests"][0] in second and CODE["tests"][0] not in advice
    bare = turns.attempt_turn({**CODE, "tests": [], "function": ""})[0]["content"]
    assert "must satisfy" not in bare and "``" not in bare.replace("```", "")


def test_the_error_is_told_only_where_it_is_given():
    turns = load_turns("code")
    assert "It failed" not in turns.feedback_turn(CODE, "a")[0]["content"]
    assert "It failed: timeout" in turns.feedback_turn(CODE, "a", "timeout")[0]["content"]


def test_that_the_shown_tests_pass_is_told_where_they_were_run():
    turns = load_turns("code")
    untold, passes, fails = (turns.feedback_turn(CODE, "a", e)[0]["content"] for e in (None, "", "timeout"))
    assert "It passes" in passes and "It failed" not in passes
    assert "It passes" not in untold and "It passes" not in fails
    assert (
        "It passes"
        not in turns.attempt_turn(CODE)[0]["content"] + turns.refine_turn(CODE, "a", "")[0]["content"]
    )


def test_the_identity_counts_the_texts_and_not_the_name(tmp_path: Path):
    given = load_turns("math")
    own = tmp_path / "own.yaml"
    own.write_text((Path(load_turns.__code__.co_filename).parent / "multiturn" / "math.yaml").read_text())
    assert load_turns(str(own)).content_id == given.content_id != load_turns("code").content_id


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("attempt: a\n", "must hold the keys"),
        ("attempt: a\nfeedback: b\nrefine: c\ncorrection: d\n", "does not contain {{ feedback }}"),
        ("attempt: '{{ nothing }}'\nfeedback: b\nrefine: '{{ feedback }}'\ncorrection: d\n", "nothing"),
        ("attempt: 1\nfeedback: b\nrefine: c\ncorrection: d\n", "holds a text"),
    ],
)
def test_faulty_templates_are_refused(tmp_path: Path, text, words):
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_turns(str(path))
    assert words in str(caught.value)
