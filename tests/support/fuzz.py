"""What must hold of verdicts for every input: the properties, and the tools that they are tried with.

`tests/unit/verifiers/test_fuzz.py` tries a few examples of each, `benchmarks/fuzz_verdicts.py` many for as long as it
is told. Mathematics is judged in the real pool, so that a hang or a crash is seen as one.
"""

import ast
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from reasoner.errors import DataError, SandboxUnavailableError
from reasoner.records import Strategy, Verdict
from reasoner.sandbox import Limits, Sandbox
from reasoner.sandbox.answers import program_result, value_of
from reasoner.sandbox.jobs import Result
from reasoner.verifiers.asserts import plan_tests
from reasoner.verifiers.code import CodeItem, verify_code
from reasoner.verifiers.extract_code import extract_code
from reasoner.verifiers.hacks import hack_signs
from reasoner.verifiers.math import MathItem
from reasoner.verifiers.numbers import TOLERANCE, extract_number
from reasoner.verifiers.pool import MathPool
from reasoner.verifiers.solutions import Answer, program_of, verify_solutions
from reasoner.verifiers.statement import has_prose
from reasoner.verifiers.stream import _math_item, _Reader
from tests.support import spellings
from tests.support.spellings import MATHEMATICAL, PLAIN, Expression, Pair

SECONDS = 5.0
"""Time limit of one try of the pool; a row is tried twice and its gold once."""
OURS = ("error", "pool_failed", "crash", "gold_crash", "memory")
"""Reasons that no input of these kinds may have."""


@dataclass
class Tools:
    """The pool and, where this machine has one, the sandbox. `slow` collects rows that only the clock stopped."""

    pool: MathPool
    sandbox: Sandbox | None
    slow: list[tuple[str, str]]

    def judge(self, gold: str, response: str) -> Verdict:
        """The pool's verdict; asserts that it came in time and was not a failure of ours."""
        started = time.monotonic()
        (verdict,) = self.pool.verdicts([MathItem(gold, response)])
        assert time.monotonic() - started < 3 * SECONDS + 20, "the pool did not keep its limit"
        assert verdict.reason not in OURS, verdict
        if "timeout" in verdict.reason:
            self.slow.append((gold, response))
        return verdict


@contextmanager
def tools() -> Iterator[Tools]:
    try:
        sandbox: Sandbox | None = Sandbox.detect(Limits(wall_seconds=5.0))
    except SandboxUnavailableError:
        sandbox = None
    with MathPool(workers=1, timeout=SECONDS) as pool:
        yield Tools(pool, sandbox, [])


@dataclass(frozen=True)
class Property:
    """A claim about every example of a strategy; `weight` is how many of its examples a second's worth is."""

    name: str
    examples: st.SearchStrategy[Any]
    check: Callable[[Tools, Any], None]
    weight: float = 1.0
    sandboxed: bool = False


def equal_numbers_are_equal(tools: Tools, pair: Pair) -> None:
    verdict = tools.judge(pair.gold, pair.response)
    assert verdict.correct, (pair, verdict)


def other_numbers_are_not(tools: Tools, pair: Pair) -> None:
    verdict = tools.judge(pair.gold, pair.response)
    assert verdict.outcome == "incorrect", (pair, verdict)


def the_number_reader_agrees(tools: Tools, pair: Pair) -> None:
    """Both verifiers say the same of one number in a response."""
    found = extract_number(pair.response)
    assert found is not None, pair
    assert abs(found - pair.stated) <= Fraction(str(TOLERANCE)) * max(1, abs(pair.stated)), (pair, found)
    (verdict,) = verify_solutions([Answer(Strategy.COT, pair.response, pair.gold)])
    assert verdict.correct == (pair.value == pair.stated), (pair, verdict)


def equal_expressions_are_equal(tools: Tools, expression: Expression) -> None:
    verdict = tools.judge(f"${expression.one}$", f"\\boxed{{{expression.two}}}")
    assert verdict.correct or verdict.reason in ("too_long", "too_deep"), (expression, verdict)


def other_expressions_are_not(tools: Tools, pair: tuple[Expression, Expression]) -> None:
    one, other = pair
    points = [(Fraction(7, 5), Fraction(13, 4)), (Fraction(-3, 2), Fraction(11, 7))]
    apart = [abs(one.value(*p) - other.value(*p)) > Fraction(1, 1000) * abs(one.value(*p)) for p in points]
    assume(all(apart))
    verdict = tools.judge(f"${one.one}$", f"\\boxed{{{other.two}}}")
    assert verdict.outcome == "incorrect", (pair, verdict)


def collections_follow_the_policy(tools: Tools, example: tuple[list[tuple[str, str]], str, bool]) -> None:
    """A list in another order is the same list; a tuple in another order is another tuple."""
    items, kind, turned = example
    gold = ", ".join(one for one, _ in items)
    said = ", ".join(two for _, two in (reversed(items) if turned else items))
    brackets = {"list": ("", ""), "set": ("\\{", "\\}"), "tuple": ("(", ")")}[kind]
    gold, said = (brackets[0] + text + brackets[1] for text in (gold, said))
    verdict = tools.judge(f"${gold}$", f"Hence $\\boxed{{{said}}}$.")
    assert verdict.correct == (kind != "tuple" or not turned), (gold, said, verdict)


def nothing_breaks_the_judge(tools: Tools, row: tuple[str, str]) -> None:
    verdict = tools.judge(*row)
    assert verdict.reason and (verdict.extracted is None or len(verdict.extracted) <= 300)


def a_readable_gold_equals_itself(tools: Tools, text: str) -> None:
    """In a box, where it has no brace or box of its own that would end that one."""
    assume(
        not any(word in text for word in ("boxed", "<", "think", "####", "nswer", "\n", "\\text", "$", "#"))
    )
    assume(text.replace("\\{", "").count("{") == text.replace("\\}", "").count("}"))
    assume(_balanced(text) and not has_prose(text))
    verdict = tools.judge(text, f"\\boxed{{{text}}}")
    assert verdict.outcome != "incorrect" or verdict.reason in ("timeout", "too_long"), (text, verdict)


def _balanced(text: str) -> bool:
    depth = 0
    plain = text.replace("\\\\", "").replace("\\{", "").replace("\\}", "")
    for character in plain:
        depth += (character == "{") - (character == "}")
        if depth < 0:
            return False
    return depth == 0 and not text.endswith("\\")


def program_readers_never_raise(tools: Tools, text: str) -> None:
    started = time.monotonic()
    extract_code(text, "f")
    program_of(text)
    hack_signs(text, ("assert f(1) == 12345", text))
    with suppress(SyntaxError, ValueError, RecursionError):  # what verify_code turns into `bad_test`
        plan_tests([text])
    assert time.monotonic() - started < 5


def result_lines_never_raise(tools: Tools, line: dict[str, Any]) -> None:
    for read in (program_result, value_of):
        assert isinstance(read(line, 0.1), Result)


def rows_fail_with_a_data_error(tools: Tools, lines: list[bytes]) -> None:
    reader = _Reader(lines, "in.jsonl", _math_item)
    for item in reader:
        assert isinstance(item, MathItem)
    try:
        reader.raise_error()
    except DataError as error:
        assert "in.jsonl:" in str(error) and len(str(error)) < 400


def values_come_back_whole(tools: Tools, pair: tuple[Any, Any]) -> None:
    """A value that the candidate returns passes a test that asks for it, and fails one that asks for another."""
    value, other = pair
    test = f"assert f() == {value!r}"
    assume(_literal(value) and _literal(other))
    right = verify_code(CodeItem(f"def f():\n    return {value!r}", (test,)), tools.sandbox)
    assert right.verdict.correct, (value, right)
    wrong = verify_code(CodeItem(f"def f():\n    return {other!r}", (test,)), tools.sandbox)
    assert wrong.verdict.correct == (value == other), (value, other, wrong)


def _literal(value: Any) -> bool:
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError):
        return False


def programs_are_never_our_failure(tools: Tools, source: str) -> None:
    assert tools.sandbox is not None
    result = tools.sandbox.evaluate_program(source, Limits(wall_seconds=2.0))
    assert result.status != "harness_error", result


LINES = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.fixed_dictionaries({"gold": spellings.json_trees, "prediction": spellings.json_trees}).map(
            lambda row: repr(row).encode("utf-8", "surrogatepass")
        ),
        st.sampled_from(
            [b'{"gold": "1", "prediction": 2}', b"[" * 3000, b'{"gold": 1e999, "prediction": ""}']
        ),
    ),
    max_size=5,
)
SOURCES = st.lists(
    st.sampled_from(
        [
            "answer",
            " = ",
            "1",
            "+",
            "\n",
            "    ",
            "def solution():\n    return ",
            "import os\n",
            "os._exit(0)\n",
            "print(",
            ")",
            "(",
            "[",
            "]",
            "while True:\n",
            "pass\n",
            "raise ",
            "ValueError\n",
            "lambda: ",
            "'",
            '"',
            "\\",
            "\x00",
            "é",
            "__import__('sys')",
            ".exit()\n",
            "class A:\n",
            "del ",
            "answer\n",
            "float('nan')",
            "10**9",
            "try:\n",
            "except:\n",
            "finally:\n",
            "os.close(",
            "os.write(",
            "b'{}\\n'",
            ",",
            "os.fork()\n",
            "os.kill(0, 9)\n",
            "yield ",
            "async ",
            "{",
            "}",
            ":",
            "f'{",
            "}'",
            "\t",
            "\r",
            "\ud800",
            "#",
            "'''",
            "global answer\n",
            "sys",
            "import sys\n",
        ]
    ),
    max_size=25,
).map("".join)
RESULT_LINES = st.dictionaries(st.sampled_from("vreoxmalid"), spellings.json_trees)
ITEMS = st.lists(spellings.values, min_size=2, max_size=4, unique=True)


@st.composite
def collections(draw: st.DrawFn) -> tuple[list[tuple[str, str]], str, bool]:
    """Different numbers, each written twice without commas of its own."""
    numbers = draw(ITEMS)
    assume(all(spellings._apart(a, b) for i, a in enumerate(numbers) for b in numbers[:i]))

    def write(value: Fraction) -> str:
        return draw(
            spellings.spelt(
                value, (*PLAIN[8:10], PLAIN[0], PLAIN[1]) if value.denominator > 1 else (PLAIN[0],)
            )
        )

    pairs = [(write(value), write(value)) for value in numbers]
    return pairs, draw(st.sampled_from(["list", "set", "tuple"])), draw(st.booleans())


PROPERTIES = (
    Property("equal numbers", spellings.number_pairs(PLAIN + MATHEMATICAL, True), equal_numbers_are_equal, 4),
    Property("other numbers", spellings.number_pairs(PLAIN + MATHEMATICAL, False), other_numbers_are_not, 2),
    Property("number reader, equal", spellings.number_pairs(PLAIN, True), the_number_reader_agrees, 8),
    Property("number reader, other", spellings.number_pairs(PLAIN, False), the_number_reader_agrees, 4),
    Property("equal expressions", spellings.expressions, equal_expressions_are_equal),
    Property(
        "other expressions", st.tuples(spellings.expressions, spellings.expressions), other_expressions_are_not
    ),
    Property("collections", collections(), collections_follow_the_policy, 2),
    Property("garbage", st.tuples(spellings.garbage, spellings.garbage), nothing_breaks_the_judge, 4),
    Property(
        "garbage against a number",
        st.tuples(spellings.values.flatmap(lambda v: spellings.spelt(v, PLAIN)), spellings.garbage),
        nothing_breaks_the_judge, 4,
    ),
    Property("itself", spellings.garbage, a_readable_gold_equals_itself, 2),
    Property("program readers", st.one_of(spellings.garbage, SOURCES), program_readers_never_raise, 8),
    Property("result lines", RESULT_LINES, result_lines_never_raise, 8),
    Property("rows", LINES, rows_fail_with_a_data_error, 4),
    Property(
        "values through the sandbox", st.tuples(spellings.plain_values, spellings.plain_values), values_come_back_whole,
        0.2, sandboxed=True,
    ),
    Property("programs", SOURCES, programs_are_never_our_failure, 0.2, sandboxed=True),
)  # fmt: skip
