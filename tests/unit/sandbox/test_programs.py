"""The contract of a program of thought: what its answer may be, and how everything else ends."""

# ruff: noqa: E501  (programs are kept as they are)

import pytest

from reasoner.sandbox import Limits, Sandbox, Status

GOOD = {
    "answer": ("answer = 6 * 7", "42.0"),
    "float": ("answer = 0.1 + 0.2", "0.30000000000000004"),
    "negative": ("answer = -3", "-3.0"),
    "solution": ("def solution():\n    return 5", "5.0"),
    "answer comes before solution": ("answer = 1\ndef solution():\n    return 2", "1.0"),
    "number as text": ("answer = '12.5'", "12.5"),
    "fraction": ("from fractions import Fraction\nanswer = Fraction(1, 4)", "0.25"),
    "decimal": ("from decimal import Decimal\nanswer = Decimal('1.10')", "1.1"),
    "int subclass": ("class I(int): pass\nanswer = I(3)", "3.0"),
    "long integer": ("answer = 10 ** 300", "1e+300"),
    "print is ignored": ("print('noise' * 10 ** 6)\nanswer = 1", "1.0"),
    "main guard": ("if __name__ == '__main__':\n    answer = 1", "1.0"),
    "one namespace": (
        "import math\ndef g(n):\n    return 1 if n < 2 else n * g(n - 1)\ndef h():\n    return math.sqrt(g(4) + 1)\nanswer = h()",
        "5.0",
    ),
    "dataclass": (
        "from dataclasses import dataclass\n@dataclass\nclass P:\n    x: 'int'\nanswer = P(4).x",
        "4.0",
    ),
    "comment in another script": ("# ответ\nanswer = 7", "7.0"),
    "multi-line print": ("print(\n    1,\n    2,\n)\nanswer = 3", "3.0"),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_programs(sandbox: Sandbox, name: str) -> None:
    source, expected = GOOD[name]
    result = sandbox.evaluate_program(source)
    assert (result.status, result.value) == (Status.OK, expected), result
    assert float(result.value) is not None and result.seconds > 0


BAD = {
    "missing": ("x = 1", Status.BAD_VALUE),
    "empty": ("", Status.BAD_VALUE),
    "none": ("answer = None", Status.BAD_VALUE),
    "bool": ("answer = True", Status.BAD_VALUE),
    "complex": ("answer = 2j", Status.BAD_VALUE),
    "nan": ("answer = float('nan')", Status.BAD_VALUE),
    "infinite": ("answer = float('inf')", Status.BAD_VALUE),
    "infinite as text": ("answer = '-inf'", Status.BAD_VALUE),
    "too large": ("answer = 10 ** 400", Status.BAD_VALUE),
    "list": ("answer = [1]", Status.BAD_VALUE),
    "bytes": ("answer = b'5'", Status.BAD_VALUE),
    "word": ("answer = 'five'", Status.BAD_VALUE),
    "solution returns nothing": ("def solution():\n    print(5)", Status.BAD_VALUE),
    "solution is not a function": ("solution = 5", Status.EXCEPTION),
    "raises": ("answer = 1 / 0", Status.EXCEPTION),
    "solution raises": ("def solution():\n    return [][0]", Status.EXCEPTION),
    "float raises": ("class X:\n    def __float__(self): raise KeyError\nanswer = X()", Status.EXCEPTION),
    "empty input": ("answer = input()", Status.EXCEPTION),
    "exit after the answer": ("answer = 5\nraise SystemExit", Status.EXCEPTION),
    "hard exit": ("import os\nanswer = 5\nos._exit(0)", Status.KILLED),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", Status.KILLED),
    "does not compile": ("answer = = 5", Status.SYNTAX_ERROR),
    "tabs": ("if 1:\n    x = 1\n\ty = 2", Status.SYNTAX_ERROR),
    "nul": ("answer = 5\0", Status.SYNTAX_ERROR),
    "surrogate": ("answer = '\ud800", Status.SYNTAX_ERROR),
    "nested too deeply": ("answer = " + "(" * 500 + "1" + ")" * 500, Status.SYNTAX_ERROR),
    "too much memory": ("answer = len(bytearray(4 << 30))", Status.MEMORY),
    "lies on the channel": (
        'import os\nfor i in range(3, 20):\n    try: os.write(i, b\'{"r":"nan"}\\n\')\n    except OSError: pass\nanswer = 1',
        Status.BAD_VALUE,
    ),
    "code on the channel": (
        'import os\nfor i in range(3, 20):\n    try: os.write(i, b\'{"r":"__import__"}\\n\')\n    except OSError: pass',
        Status.BAD_VALUE,
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_programs(sandbox: Sandbox, name: str) -> None:
    source, status = BAD[name]
    result = sandbox.evaluate_program(source)
    assert result.status is status, result
    assert result.value is None
    assert not result.ok


def test_exception_is_told(sandbox: Sandbox) -> None:
    result = sandbox.evaluate_program("raise ValueError('too many apples')")
    assert (result.type_name, result.message) == ("ValueError", "too many apples")


def test_timeout(sandbox: Sandbox) -> None:
    result = sandbox.evaluate_program("while True: pass", Limits(wall_seconds=0.5))
    assert result.status is Status.TIMEOUT
    assert 0.4 < result.seconds < 20, "not the limit of processor time"


def test_cpu_limit(sandbox: Sandbox) -> None:
    result = sandbox.evaluate_program("while True: pass", Limits(wall_seconds=30, cpu_seconds=1))
    assert result.status is Status.TIMEOUT
    assert "CPU" in result.message
