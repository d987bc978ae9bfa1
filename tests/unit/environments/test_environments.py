"""What an answer is worth: references pass, an empty body and a wrong constant fail, an unreadable gold is unscored."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from reasoner.environments import Environment, open_environment
from reasoner.environments.code import item_of
from reasoner.environments.mathematics import holds_answer
from reasoner.records import Problem
from reasoner.sandbox.process import Cancelled
from reasoner.verifiers.asserts import plan_tests

TESTS = ["assert double(2) == 4", "assert double(0) == 0", "assert double(-3) == -6"]
DOUBLE = Problem.make("Write a function that doubles a number.", json.dumps(TESTS), "ours")


@pytest.fixture(scope="module")
def math() -> Iterator[Environment]:
    with open_environment("math", workers=1) as environment:
        yield environment


@pytest.fixture(scope="module")
def code() -> Iterator[Environment]:
    with open_environment("code", workers=2) as environment:
        yield environment


def outcomes(environment: Environment, problem: Problem, *texts: str) -> list[str]:
    return [str(j.verdict.outcome) for j in environment.judge([(problem, text) for text in texts])]


def test_math_needs_a_box_or_a_marker(math):
    half = Problem.make("What is $1/2$?", "\\frac{1}{2}", "ours")
    found = outcomes(
        math,
        half,
        "So $\\boxed{0.5}$.",
        "The answer is 1/2.",
        "It is 3/4, and 1/2 was wrong",
        "",
        "\\boxed{2}",
    )
    assert found == ["correct", "correct", "incorrect", "incorrect", "incorrect"]


def test_an_unreadable_gold_is_unscored(math):
    assert outcomes(math, Problem.make("Q", "\\frac{1}{", "ours"), "\\boxed{1}") == ["unscored"]


@pytest.mark.parametrize(
    ("gold", "text", "wanted"),
    [
        ("12", "Check the sum; it should be 12.", True),
        ("12", "Check the sum of 120 and 3.", False),
        ("0.5", "Half, that is 1/2.", True),
        ("\\frac{\\pi}{2}", "Use $\\dfrac{\\pi}{2}$ here.", True),
        ("x^2+2x+1", "You lost the term 2x.", False),
        ("x^2+2x+1", "It is x^2 + 2x + 1.", True),
    ],
)
def test_what_gives_the_answer_away(gold, text, wanted):
    assert holds_answer(gold, text) is wanted


def test_a_reference_passes_and_an_empty_body_and_a_wrong_constant_fail(code):
    found = outcomes(
        code,
        DOUBLE,
        "```python\ndef double(n):\n    return 2 * n\n```",
        "def double(n): pass",
        "def double(n): return 4",
        "import sys; sys.exit(0)",
        "",
    )
    assert found == ["correct", "incorrect", "incorrect", "incorrect", "incorrect"]


def test_imports_recursion_and_helpers_work_with_one_namespace(code):
    helper = "import math\ndef helper(n):\n    return n if n else math.prod([0])\n"
    program = f"{helper}def double(n):\n    return helper(n) + n"
    assert outcomes(code, DOUBLE, program) == ["correct"]


def test_the_tests_that_were_not_shown_are_told_apart(code):
    hard_coded, broken = "def double(n): return 4", "def double(n) return"
    first, second = code.judge([(DOUBLE, hard_coded), (DOUBLE, broken)])
    assert first.unshown == 0.0 and second.unshown == 0.0 and not first.verdict.correct
    assert "double(0) == 0" in first.note
    with open_environment("code", show_tests="none") as all_hidden:
        (judged,) = all_hidden.judge([(DOUBLE, hard_coded)])
        assert judged.unshown == pytest.approx(1 / 3) and all_hidden.facts(DOUBLE)["tests"] == []
    with open_environment("code", show_tests="all") as none_hidden:
        (judged,) = none_hidden.judge([(DOUBLE, hard_coded)])
        assert judged.unshown is None and none_hidden.facts(DOUBLE)["tests"] == TESTS


def test_what_the_shown_tests_say_holds_nothing_of_the_others(code):
    """`code` shows the first test alone."""
    bodies = (": return 2 * n", ": return 4", ": return n", " return")
    texts = [(DOUBLE, f"def double(n){body}") for body in bodies]
    said = ["assert_fail: assert double(2) == 4", "syntax_error: assert double(2) == 4"]
    assert code.tried(texts) == ["", "", *said]
    with open_environment("code", show_tests="none") as none_shown:
        assert none_shown.tried(texts) == [None] * 4
    with open_environment("code", show_tests="all") as all_shown:
        assert all_shown.tried(texts) == ["", "assert_fail: assert double(0) == 0", *said]


def test_a_hidden_test_that_ends_the_program_is_not_told(code):
    """Of both tests together the hidden one runs first, since its value can be asked for."""
    hidden = "assert double(7) == [14]"
    problem = Problem.make("Double.", json.dumps(["assert sorted(double(2)) == [4]", hidden]), "ours")
    text = "import os\ndef double(n):\n    return [2 * n] if n != 7 else os._exit(0)"
    (judged,) = code.judge([(problem, text)])
    assert not judged.verdict.correct and code.tried([(problem, text)]) == [""]


def test_what_the_judge_cannot_do_is_not_told_as_a_failure(code):
    odd = Problem.make("Odd.", json.dumps(["assert double(2) is"]), "ours")
    assert code.tried([(odd, "def double(n): return 2 * n")]) == [None]


def test_the_solver_is_told_the_functions_name(code):
    assert code.facts(DOUBLE) == {
        "question": DOUBLE.question, "function": "double", "tests": TESTS[:1],
    }  # fmt: skip
    assert plan_tests(TESTS).function == "double"


def test_a_hack_is_suspected(code):
    (judged,) = code.judge([(DOUBLE, "import os\ndef double(n):\n    os._exit(0)")])
    assert judged.signs and not judged.verdict.correct


def test_feedback_that_holds_a_right_program_is_a_leak(code):
    right, wrong = (
        "Use this: ```python\ndef double(n): return 2*n\n```",
        "```python\ndef double(n): return n\n```",
    )
    texts = [(DOUBLE, right), (DOUBLE, wrong), (DOUBLE, "Multiply by two.")]
    assert code.reveals(texts) == [True, False, False]


def test_a_program_that_never_ends_takes_its_limit_once_whoever_asks(monkeypatch):
    """Asked for twice at a time and once more later, beside another that ends: each of the two runs once."""
    endless = "def double(n):\n    while True: pass"
    texts = [(DOUBLE, endless), (DOUBLE, "def double(n): return n"), (DOUBLE, endless)]
    with open_environment("code", workers=2, timeout=3.0) as judge, ThreadPoolExecutor(2) as callers:
        ran, run = [], judge._run
        monkeypatch.setattr(judge, "_run", lambda item: ran.append(item) or run(item))
        asked, searched = callers.submit(judge.judge, texts), callers.submit(judge.reveals, texts)
        reasons = [j.verdict.reason for j in asked.result()]
        again = [j.verdict.reason for j in judge.judge(texts)]
    assert reasons == again == ["timeout", "assert_fail", "timeout"] and searched.result() == [False] * 3
    assert sorted(item.program for item in ran) == sorted({text for _, text in texts})


def test_leaving_ends_a_program_that_still_runs():
    with ThreadPoolExecutor(1) as caller:
        with open_environment("code", workers=1, timeout=60.0) as judge:
            asked = caller.submit(judge.judge, [(DOUBLE, "def double(n):\n    while True: pass")])
            started = time.monotonic()
            time.sleep(1)
        with pytest.raises(Cancelled):
            asked.result()
    assert time.monotonic() - started < 20


def test_what_is_unscored_is_judged_again(code):
    """A failure of the judge is no verdict, so it is not remembered as one."""
    odd = Problem.make("Odd.", json.dumps(["assert double(2) is"]), "ours")
    item = item_of(odd, "def double(n): return 2*n")
    assert outcomes(code, odd, "def double(n): return 2*n") == ["unscored"]
    first = code._verdicts[item]
    assert outcomes(code, odd, "def double(n): return 2*n") == ["unscored"]
    assert code._verdicts[item] is not first
