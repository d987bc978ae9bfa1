"""The policy's turn is built from the record of what was tried."""

import pytest

from reasoner.errors import ConfigurationError, UsageError
from reasoner.prompts import Attempt, completion, load_template
from reasoner.records import Strategy

SMART = load_template("smart")
NONE_QUESTION = "None of the 12 eggs broke, {{ 7 }} None said none. How many {eggs} are whole?"


def test_the_first_turn():
    assert SMART.user_turn("How many?") == (
        "Solve the problem. Start your reply with the name of one strategy\n"
        "(Chain of Thought | Sub-questioning | Program of Thought), then a colon, then the solution.\n"
        "Problem: How many?\n"
        "Strategies already tried without success: none"
    )


def test_the_second_turn_names_what_failed_but_not_how():
    turn = SMART.user_turn("How many?", [Attempt(Strategy.SUB, "it is 7"), Attempt(Strategy.COT)])
    assert turn.endswith("Strategies already tried without success: Sub-questioning, Chain of Thought")
    assert "it is 7" not in turn


def test_full_context_shows_the_failed_solution():
    turn = SMART.user_turn("How many?", [Attempt(Strategy.POT, "answer = 7\n")], "full")
    assert turn.endswith(
        "Strategies already tried without success: Program of Thought\n"
        "Failed solution (Program of Thought):\nanswer = 7"
    )


def test_full_context_without_the_solution_is_refused():
    with pytest.raises(UsageError, match="needs the failed solution"):
        SMART.user_turn("How many?", [Attempt(Strategy.POT)], "full")


@pytest.mark.parametrize("name", ["smart", "demo"])
@pytest.mark.parametrize("tried", [(), (Attempt(Strategy.COT, "None {{ 1 + 1 }}"),)])
@pytest.mark.parametrize("context", ["name", "full"])
def test_a_question_that_contains_none_or_braces_survives(name, tried, context):
    turn = load_template(name).user_turn(NONE_QUESTION, tried, context)
    assert f"Problem: {NONE_QUESTION}\n" in turn
    assert ("None {{ 1 + 1 }}" in turn) == (context == "full" and bool(tried))
    assert ("none" in turn.splitlines()[-1].split()) == (not tried)


def test_only_the_strategies_of_the_run_are_offered():
    turn = SMART.user_turn("How many?", strategies=(Strategy.COT, Strategy.POT))
    assert "(Chain of Thought | Program of Thought)" in turn


def test_a_message_is_one_user_turn():
    assert SMART.messages("How many?") == [{"role": "user", "content": SMART.user_turn("How many?")}]


def test_a_completion_is_title_colon_solution():
    assert completion(Strategy.SUB, "\n1. a {b} None\n") == "Sub-questioning: 1. a {b} None"


def test_the_hash_follows_the_text(tmp_path):
    path = tmp_path / "t.yaml"
    path.write_text("user: 'Solve: {{ question }}'\n")
    first = load_template(str(path))
    path.write_text("user: 'Solve it: {{ question }}'\n")
    assert first.content_hash != load_template(str(path)).content_hash
    assert first.content_hash != SMART.content_hash
    assert load_template("smart").content_hash == SMART.content_hash


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("user: 'Solve {{ questionn }}'", "'questionn' is undefined"),
        ("user: 'Solve {{ question'", "unexpected end"),
        ("user: 'Solve it'", "does not contain"),
        ("user: 3", "must hold one key"),
        ("user: 'x'\nassistant: 'y'", "must hold one key"),
        ('user: "{{ question.__class__.__mro__ }} {{ question }}"', "unsafe"),
    ],
)
def test_a_faulty_template_is_refused(tmp_path, text, message):
    path = tmp_path / "t.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        load_template(str(path))


def test_an_unknown_template_names_the_nearest():
    with pytest.raises(ConfigurationError, match="did you mean 'smart'"):
        load_template("smrt")
