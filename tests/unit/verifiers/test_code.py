"""Verdicts on code: splitting of tests, extraction, both kinds of data set, and what must not pass."""

# ruff: noqa: E501  (programs are kept as they are)

import ast
import json
import threading
import time
from typing import Any

import pytest

from reasoner.records import Outcome
from reasoner.sandbox import Sandbox
from reasoner.verifiers.asserts import plan_tests
from reasoner.verifiers.code import (
    CodeItem,
    CodeVerdict,
    PromptItem,
    stream_verdicts,
    verify_code,
)
from reasoner.verifiers.extract_code import complete_prompt, extract_code
from reasoner.verifiers.hacks import hack_signs
from tests.support.code_verdicts import verify_codes

ADD = ("assert add(1, 2) == 3", "assert add(-4, 4) == 0", "assert add(10, 5) == 15")


def judge(sandbox: Sandbox, program: str, *tests: str, **rest: Any) -> CodeVerdict:
    return verify_code(CodeItem(program, tests or ADD, **rest), sandbox)


# --- splitting of tests


@pytest.mark.parametrize(
    ("test", "question"),
    [
        ("assert f(1, 2) == 3", "f(1, 2)"),
        ("assert 3 == f(1, 2)", "f(1, 2)"),
        ("assert f([1], k=(2,)) == {'a': [1.5, None]}, 'message'", "f([1], k=(2,))"),
        ("assert f(1) is None", "f(1)"),
        ("assert f(1) is not True", "f(1)"),
        ("assert f(1) > 3", "f(1)"),
        ("assert f(1) in (1, 2)", "f(1)"),
        ("assert f(sorted([2, 1])) == 3", "f(sorted([2, 1]))"),
        ("assert f(Pair(1, 2)) == 3", "f(Pair(1, 2))"),
        ("assert f(1)", "not not f(1)"),
        ("assert not f(1)", "not not f(1)"),
        ("assert sum(10, 15) == 6", "sum(10, 15)"),
    ],
)
def test_asserts_that_split(test: str, question: str) -> None:
    plan = plan_tests([test])
    assert plan.questions[0] is not None
    [found] = plan.questions[0]
    assert ast.unparse(ast.parse(found.expression)) == question
    assert plan.split == 1


@pytest.mark.parametrize(
    "test",
    [
        "assert len(f(1)) == 3",
        "assert set(f(1)) == {1}",
        "assert all(x > 1 for x in f(3))",
        "assert f(1) == f(2)",
        "assert f(1) == g(1)",
        "assert f(1).strip() == 'a'",
        "assert f(1)[0] == 'a'",
        "assert (f(1) == 3) == True",
        "assert abs(f(1) - 0.3) < 1e-6",
        "assert f(1) == 1 or f(1) == 2",
        "assert 1 < f(1) < 3",
        "assert f(1) is 300",
        "x = f(1)",
        "for i in range(3):\n    assert f(i) == i",
        "import math\nassert f(math.pi) == 3",
        "assert isinstance(f(1), int)",
    ],
)
def test_asserts_that_the_tester_runs(test: str) -> None:
    assert plan_tests([test]).questions == (None,)


def test_names_that_tests_bind_are_not_the_candidates() -> None:
    plan = plan_tests(
        ["x = [3, 1]", "assert f(x) == 3", "assert math.isclose(f([1]), 1)", "assert f(1) == 1"]
    )
    assert [q is None for q in plan.questions] == [True, True, True, False]
    assert plan.stubs == ("f",) and plan.modules == ("math",)
    assert plan.function == "f"


def test_the_name_of_the_function() -> None:
    assert plan_tests(ADD).function == "add"
    assert plan_tests(["assert sum(1, 2) == 3"]).function == "sum"
    assert plan_tests(["assert set(f(g(1))) == {1}", "assert f(2) == 3"]).function == "f"
    assert plan_tests([]).function == ""


# --- extraction

FENCE = "```"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def add(a, b): return a", "def add(a, b): return a"),
        (f"Look:\n{FENCE}python\ndef add(): 1\n{FENCE}\nDone.", "def add(): 1\n"),
        (f"{FENCE}\ndef add(): 1\n{FENCE}", "def add(): 1\n"),
        (f"{FENCE}py\ndef add(): 1", "def add(): 1\n"),
        ("~~~python\ndef add(): 1\n~~~", "def add(): 1\n"),
        (f"{FENCE}python\r\ndef add(): 1\r\n{FENCE}\r\n", "def add(): 1\n"),
        (
            f"{FENCE}python\ndef add(): 0\n{FENCE}\nNo:\n{FENCE}python\ndef add(): 1\n{FENCE}",
            "def add(): 1\n",
        ),
        (
            f"{FENCE}python\ndef add(): 1\n{FENCE}\nUse:\n{FENCE}python\nprint(add())\n{FENCE}",
            "def add(): 1\n",
        ),
        (f"{FENCE}python\ndef add(): 1\n{FENCE}\n{FENCE}text\noutput\n{FENCE}", "def add(): 1\n"),
        (f"{FENCE}bash\npip install x\n{FENCE}\n{FENCE}python\nx = 1\n{FENCE}", "x = 1\n"),
        (
            f"<think>\n{FENCE}python\ndef add(): 0\n{FENCE}\n</think>\n{FENCE}python\nx = 1\n{FENCE}",
            "x = 1\n",
        ),
        (f"Sure: {FENCE}python\ndef add(): 1\n{FENCE}", "def add(): 1\n"),
        (
            f'{FENCE}python\ndef add():\n    """\n    {FENCE}\n    x\n    {FENCE}\n    """\n    return 1\n{FENCE}',
            f'def add():\n    """\n    {FENCE}\n    x\n    {FENCE}\n    """\n    return 1\n',
        ),
        (f"{FENCE}{FENCE}python\n{FENCE}\n{FENCE}{FENCE}", f"{FENCE}\n"),
        ("", ""),
    ],
)
def test_extraction(text: str, code: str) -> None:
    assert extract_code(text, "add").code == code


def test_extraction_is_linear() -> None:
    started = time.monotonic()
    for text in (f"{FENCE}python\n" * 50_000, "`" * 500_000, " " * 500_000 + FENCE, f"a {FENCE}" * 100_000):
        extract_code(text, "f")
    assert time.monotonic() - started < 5


PROMPT = 'from typing import List\n\n\ndef helper(x):\n    return x\n\n\ndef f(x: List[int]) -> int:\n    """Doc."""\n'


@pytest.mark.parametrize(
    "completion",
    [
        "    return helper(len(x))\n",
        "return helper(len(x))",
        "    y = len(x)\n    return helper(y)\n\n\nprint(f([1]))\nassert False\n",
        "    return helper(len(x))\n\n# End\ndef other():\n    return 1\n",
        f"{FENCE}python\ndef f(x: List[int]) -> int:\n    return helper(len(x))\n{FENCE}\nHope that helps!",
        f"{FENCE}python\nfrom typing import List\ndef g(x): return len(x)\ndef f(x: List[int]):\n    return g(x)\n{FENCE}",
        f"Here is the body:\n{FENCE}python\n    return len(x)\n{FENCE}",
        "    return len(x)\nThe function counts.\n",
    ],
)
def test_completions_of_a_prompt(sandbox: Sandbox, completion: str) -> None:
    test = "def check(candidate):\n    assert candidate([1, 2]) == 2\n    assert candidate([]) == 0\n"
    verdict = verify_code(PromptItem(PROMPT, completion, test, "f"), sandbox)
    assert verdict.verdict.reason == "pass", (verdict, complete_prompt(PROMPT, completion, "f").code)
    wrong = completion.replace("len(x)", "1")
    assert verify_code(PromptItem(PROMPT, wrong, test, "f"), sandbox).verdict.outcome is Outcome.INCORRECT


# --- verdicts


def test_right_program(sandbox: Sandbox) -> None:
    found = judge(sandbox, "def add(a, b):\n    return a + b")
    assert (found.verdict.outcome, found.verdict.reason) == (Outcome.CORRECT, "pass")
    assert [t.passed for t in found.tests] == [True] * 3 and found.fraction == 1.0
    assert found.verdict.seconds > 0 and found.tester_tests == 0


def test_a_hard_coded_answer_is_no_pass(sandbox: Sandbox) -> None:
    found = judge(sandbox, "def add(a, b):\n    return 3")
    assert (found.verdict.outcome, found.verdict.reason) == (Outcome.INCORRECT, "assert_fail")
    assert [t.passed for t in found.tests] == [True, False, False]
    assert found.fraction == pytest.approx(1 / 3)
    assert found.tests[1].detail == "3"


WRONG = {
    "no function": ("x = 1", "exception"),
    "raises": ("def add(a, b): return a / 0", "exception"),
    "does not compile in a fence": ("```python\ndef add(a, b:\n```", "syntax_error"),
    "prose": ("I cannot do that.", "unparsed"),
    "nothing": ("", "unparsed"),
    "empty fence": ("```python\n```", "unparsed"),
    "other type": ("def add(a, b): return str(a + b)", "assert_fail"),
    "an object": ("def add(a, b): return object()", "assert_fail"),
    "equal to everything": (
        "class E(int):\n    def __eq__(self, o): return True\n    __hash__ = int.__hash__\ndef add(a, b): return E(-99)",
        "assert_fail",
    ),
    "ends early": ("import os\ndef add(a, b): os._exit(0)", "killed"),
    "exits": ("def add(a, b): raise SystemExit(0)", "exception"),
    "huge": ("def add(a, b): return 1 << 9000000", "assert_fail"),
    "an integer that repr refuses": ("def add(a, b): return 10 ** 5000", "assert_fail"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_programs(sandbox: Sandbox, name: str) -> None:
    program, reason = WRONG[name]
    found = judge(sandbox, program)
    assert (found.verdict.outcome, found.verdict.reason) == (Outcome.INCORRECT, reason), found


def test_values_are_compared_as_the_assert_says(sandbox: Sandbox) -> None:
    program = "def f(x): return x"
    holds = ("assert f(4.0) == 4", "assert f(True) == 1", "assert f({1}) == {1}", "assert f(0.5) == 0.5")
    assert judge(sandbox, program, *holds).verdict.correct
    for fails in (
        "assert f(0.1 + 0.2) == 0.3",
        "assert f([1]) == (1,)",
        "assert f('1') == 1",
        "assert f(1) is True",
        "assert f(1.0000001) == 1.0",
        "assert f(float('nan')) == 0",
        "assert f(None) == 0",
        "assert f('a') < 1",
    ):
        assert judge(sandbox, program, fails).verdict.reason == "assert_fail", fails


def test_truth_of_any_object(sandbox: Sandbox) -> None:
    program = "import re\ndef f(s): return re.search('a', s)"
    found = judge(sandbox, program, "assert f('cat')", "assert not f('dog')")
    assert found.verdict.correct and found.tester_tests == 0
    assert judge(sandbox, program, "assert f('dog')").verdict.reason == "assert_fail"


def test_setup_runs_after_the_program(sandbox: Sandbox) -> None:
    program = "class Node:\n    def __init__(self, v): self.v = v\ndef f(n): return n.v"
    found = judge(sandbox, program, "assert f(root) == 4", setup="root = Node(4)")
    assert found.verdict.correct


def test_timeout_is_incorrect_and_keeps_earlier_tests(sandbox: Sandbox) -> None:
    program = "def add(a, b):\n    while a == 10: pass\n    return a + b"
    found = verify_code(CodeItem(program, ADD), sandbox, timeout=4.0)
    assert [t.reason for t in found.tests] == ["pass", "pass", "timeout"]
    assert (found.verdict.outcome, found.verdict.reason) == (Outcome.INCORRECT, "timeout")


# --- the second sandbox

TESTER_PASSES = {
    "helper": ("def f(x): return [x, x]", "assert set(f(3)) == set((3,))"),
    "module": ("def f(x): return x + 1e-9", "assert math.isclose(f(1.0), 1.0, rel_tol=0.001)"),
    "imported module": (
        "def f(x): return x + 1e-9",
        "import math\nassert math.isclose(f(1.0), 1.0, rel_tol=1e-3)",
    ),
    "two functions": ("def e(x): return x + 1\ndef d(x): return x - 1", "assert d(e(5)) == e(d(5))"),
    "loop": ("def f(x): return x * 2", "for i in range(20):\n    assert f(i) == 2 * i"),
    "generator": ("def f(n):\n    yield from range(n)", "assert list(f(3)) == [0, 1, 2]"),
    "range": ("def f(n): return range(n)", "assert sorted(f(3)) == [0, 1, 2]"),
    "expected exception": (
        "def f(x):\n    if x < 0: raise ValueError('negative')\n    return x",
        "try:\n    f(-1)\n    raise AssertionError('no error')\nexcept ValueError as e:\n    assert 'negative' in str(e)",
    ),
    "argument changed in place": (
        "def f(xs, d, s):\n    xs.sort()\n    d['k'] = 1\n    s.add(9)",
        "xs, d, s = [3, 1], {}, {1}\nf(xs, d, s)\nassert xs == [1, 3] and d == {'k': 1} and s == {1, 9}",
    ),
    "keyword": ("def f(a, *, b=1): return a - b", "x = f(5, b=2)\nassert x == 3"),
    "big values": ("def f(n): return [n] * 1000", "assert sum(len(f(i)) for i in range(100)) == 100000"),
}


@pytest.mark.parametrize("name", TESTER_PASSES)
def test_other_shapes_pass_in_the_tester(sandbox: Sandbox, name: str) -> None:
    program, test = TESTER_PASSES[name]
    found = judge(sandbox, program, test)
    assert found.verdict.reason == "pass", found
    assert found.tester_tests == 1


TESTER_FAILS = {
    "patched helper": (
        "import builtins\nbuiltins.all = lambda *a: True\nbuiltins.set = lambda *a: 5\ndef f(x): return [1, 3]",
        "assert all(x % 2 == 0 for x in f(1))",
        "assert_fail",
    ),
    "equal to everything": (
        "class E:\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\ndef f(x): return E()",
        "assert (f(1) == 3) == True",
        "exception",
    ),
    "not equal to anything": ("def f(x): return object()", "assert (f(1) != 3) == True", "exception"),
    "a method that agrees": (
        "class S(str):\n    def endswith(self, *a): return True\ndef f(x): return S('x')",
        "assert f(1).endswith('ing') is True",
        "assert_fail",
    ),
    "wrong": ("def f(x): return x", "assert len(f([1])) == 2", "assert_fail"),
    "raises": ("def f(x): return 1 / 0", "assert len(f([1])) == 2", "exception"),
    "claims that an assertion failed": (
        "def f(x): raise AssertionError",
        "assert len(f(1)) == 2",
        "exception",
    ),
    "ends": ("import os\ndef f(x): os._exit(0)", "assert len(f(1)) == 2", "killed"),
    "exits": ("def f(x): raise SystemExit", "assert len(f(1)) == 2", "exception"),
    "missing": ("g = 1", "assert len(f(1)) == 2", "exception"),
    "hangs": ("def f(x):\n    while True: pass", "assert len(f(1)) == 2", "timeout"),
    "iterator handed back": (
        "def f(x): return iter([1])\ndef g(x): return 1",
        "assert g(f(1)) + 0 == 1",
        "exception",
    ),
    "values that grow": (
        "def f(x): return x + x",
        "x = 'a'\nfor i in range(40): x = f(x)\nassert x",
        "exception",
    ),
    "endless iterator": ("def f(x):\n    while True: yield 1", "assert next(f(1)) + 1 == 2", "exception"),
}


@pytest.mark.parametrize("name", TESTER_FAILS)
def test_other_shapes_fail_in_the_tester(sandbox: Sandbox, name: str) -> None:
    program, test, reason = TESTER_FAILS[name]
    found = verify_code(CodeItem(program, (test,)), sandbox, timeout=2.0)
    assert (found.verdict.outcome, found.verdict.reason) == (Outcome.INCORRECT, reason), found
    assert found.tester_tests == 1


def test_tests_share_a_namespace_in_order(sandbox: Sandbox) -> None:
    program = "def f(x): return [x]"
    found = judge(sandbox, program, "x = f(1)", "x.append(2)", "assert x == [1, 2]", "assert f(5) == [5]")
    assert found.verdict.correct and found.tester_tests == 3


def test_prompt_helpers_cannot_be_replaced(sandbox: Sandbox) -> None:
    prompt = 'def encode(s):\n    return s[::-1]\n\n\ndef decode(s):\n    """Undo encode."""\n'
    test = "def check(candidate):\n    for s in ('ab', 'xyz'):\n        assert candidate(encode(s)) == s\n"
    assert verify_code(PromptItem(prompt, "    return s[::-1]\n", test, "decode"), sandbox).verdict.correct
    forged = "    return s\n\ndef encode(s):\n    return s\n"
    assert verify_code(PromptItem(prompt, forged, test, "decode"), sandbox).verdict.reason == "assert_fail"


# --- signs


@pytest.mark.parametrize(
    ("program", "sign"),
    [
        ("import sys\nsys.exit(0)", "exit"),
        ("class E:\n    def __eq__(self, o): return True", "equality"),
        ("import builtins\nbuiltins.all = any", "builtins"),
        ("import sys\nsys._getframe(1)", "frames"),
        ("open('conftest.py', 'w')", "test files"),
        ("import os\nos.fork()", "system"),
        ("try:\n    pass\nexcept:\n    pass", "swallowed errors"),
        ("def add(a, b):\n    return {(1, 2): 1234, (3, 4): 5678}[a, b]", "hard-coded"),
    ],
)
def test_signs_of_an_attack(program: str, sign: str) -> None:
    tests = ("assert add(1, 2) == 1234", "assert add(3, 4) == 5678")
    assert hack_signs(program, tests) == (sign,)


def test_signs_are_told_and_change_nothing(sandbox: Sandbox) -> None:
    found = judge(sandbox, "import sys\ndef add(a, b): return a + b\nif 0: sys.exit(0)")
    assert found.verdict.correct and found.signs == ("exit",)
    assert judge(sandbox, "def add(a, b): return a + b").signs == ()


# --- what is nobody's failure


@pytest.mark.parametrize(
    ("tests", "reason"),
    [
        ((), "no_tests"),
        (("assert f(1) ==",), "bad_test"),
        (("assert f(1) == 1\0",), "bad_test"),
        (("assert len(f(lambda x: x)) == 1",), "unsupported_test"),
        (("assert f.cache == 1",), "unsupported_test"),
    ],
)
def test_tests_that_cannot_be_run_are_unscored(sandbox: Sandbox, tests: tuple[str, ...], reason: str) -> None:
    found = verify_code(CodeItem("def f(x): return [1]", tests), sandbox)
    assert (found.verdict.outcome, found.verdict.reason) == (Outcome.UNSCORED, reason)
    assert found.fraction == 0.0


def test_a_failed_sandbox_is_unscored(sandbox: Sandbox) -> None:
    broken = Sandbox(sandbox.as_root, filter=b"\xff" * 16, limits=sandbox.limits)
    found = judge(broken, "def add(a, b): return a + b")
    assert (found.verdict.outcome, found.verdict.reason) == (Outcome.UNSCORED, "harness_error")


def test_a_wrong_program_is_wrong_even_beside_a_bad_test(sandbox: Sandbox) -> None:
    found = judge(sandbox, "def f(x): return x", "assert f(1) == 2", "assert len(f(lambda: 0)) == 1")
    assert (found.verdict.outcome, found.verdict.reason) == (Outcome.INCORRECT, "assert_fail")


# --- many at a time


def test_many_in_order_and_streamed(sandbox: Sandbox) -> None:
    items = [CodeItem(f"def add(a, b): return a + b + {i % 2}", ADD) for i in range(8)]
    assert [v.verdict.correct for v in verify_codes(items, workers=3, sandbox=sandbox)] == [True, False] * 4
    before = threading.active_count()
    stream = stream_verdicts(items, workers=2, sandbox=sandbox)
    seen = next(stream)[0]
    assert seen in range(8)
    stream.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_rows_go_to_plain_data(sandbox: Sandbox) -> None:
    found = judge(sandbox, "def add(a, b): return 3")
    assert json.loads(json.dumps(found.verdict.to_row()))["outcome"] == "incorrect"
    assert [json.loads(json.dumps(t.to_row()))["reason"] for t in found.tests] == [
        "pass",
        "assert_fail",
        "assert_fail",
    ]
