"""Splits trusted tests into questions to the candidate and answers that stay here.

`assert f(1, 2) == 3` becomes the question `f(1, 2)` and the answer 3: only the question enters the sandbox.
Every other shape (a helper around the call, two calls, a loop, …) is left to `reasoner.sandbox.tester`.

Equality is that of the assert as it stands, on plain values: `4 == 4.0` and `True == 1` hold, `[1] == (1,)`
and `0.1 + 0.2 == 0.3` do not. A tolerance would make solutions pass that the data set's own tests fail, and
tests that want one say `math.isclose`. Equal types cannot be asked for: 22 of the 974 references of MBPP
return an integer for a float or the reverse.
"""

import ast
import builtins
import operator
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_OPERATORS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda value, items: value in items,
    ast.NotIn: lambda value, items: value not in items,
    ast.Is: lambda value, expected: value is expected,
    ast.IsNot: lambda value, expected: value is not expected,
}
_MIRRORED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.Eq,
    ast.NotEq: ast.NotEq,
    ast.Lt: ast.Gt,
    ast.LtE: ast.GtE,
    ast.Gt: ast.Lt,
    ast.GtE: ast.LtE,
    ast.Is: ast.Is,
    ast.IsNot: ast.IsNot,
}
BUILTINS = frozenset(vars(builtins))


@dataclass(frozen=True, slots=True)
class Question:
    """An expression for the candidate, and the judgement of its value, which it never sees."""

    expression: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class TestPlan:
    """How the tests of a problem are run: questions where a test splits, None where the tester runs it."""

    __test__ = False
    tests: tuple[str, ...]
    questions: tuple[tuple[Question, ...] | None, ...]
    stubs: tuple[str, ...]
    """Names that the tests use and that only the candidate can have."""
    modules: tuple[str, ...]
    """Modules of the standard library that the tests use without importing them."""
    function: str
    """The function under test, or an empty string."""

    @property
    def split(self) -> int:
        """How many tests need no tester."""
        return sum(q is not None for q in self.questions)


def plan_tests(tests: Sequence[str], preamble: str = "") -> TestPlan:
    """Plan trusted tests. `preamble` defines names for the tester. Raises SyntaxError on bad Python."""
    trees = [ast.parse(test) for test in tests]
    bound = _bound_names(ast.parse(preamble))
    for tree in trees:
        bound |= _bound_names(tree)
    used = Counter(
        node.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id not in bound
    )
    bases = {
        node.value.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    modules = {name for name in used if name in bases and name in sys.stdlib_module_names}
    foreign = [name for name in used if name not in modules and name not in BUILTINS]
    questions = tuple(_split(tree, bound) for tree in trees)
    return TestPlan(
        tuple(tests),
        questions,
        tuple(foreign),
        tuple(sorted(modules)),
        _function_under_test(trees, foreign),
    )


def _bound_names(tree: ast.AST) -> set[str]:
    """Names that a tree of statements defines."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            names.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            names.add(node.name)
    return names


def _function_under_test(trees: Sequence[ast.AST], foreign: Sequence[str]) -> str:
    """The name that is called most; a builtin's where no other is called (`assert sum(1, 2) == 3`)."""
    called = Counter(
        node.func.id
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )
    for names in (foreign, list(called)):
        ranked = sorted((name for name in names if name in called), key=lambda name: -called[name])
        if ranked:
            return ranked[0]
    return ""


def _split(tree: ast.Module, bound: set[str]) -> tuple[Question, ...] | None:
    """The questions of a test that is nothing but asserts on single calls, else None."""
    questions: list[Question] = []
    for statement in tree.body:
        if not isinstance(statement, ast.Assert):
            return None
        parts = [statement.test]
        if isinstance(statement.test, ast.BoolOp) and isinstance(statement.test.op, ast.And):
            parts = statement.test.values
        for part in parts:
            question = _question(part, bound)
            if question is None:
                return None
            questions.append(question)
    return tuple(questions) or None


def _question(test: ast.expr, bound: set[str]) -> Question | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) and _is_question(test.operand, bound):
        return Question(f"not not ({ast.unparse(test.operand)})", lambda value: value is False)
    if _is_question(test, bound):
        # Any object has a truth value, which is asked for without saying which one is wanted.
        return Question(f"not not ({ast.unparse(test)})", lambda value: value is True)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    kind, left, right = type(test.ops[0]), test.left, test.comparators[0]
    if not _is_question(left, bound):
        if kind not in _MIRRORED:
            return None
        kind, left, right = _MIRRORED[kind], right, left
    if not _is_question(left, bound):
        return None
    try:
        expected = ast.literal_eval(right)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    if kind in (ast.Is, ast.IsNot) and not (expected is None or isinstance(expected, bool)):
        return None
    compare = _OPERATORS[kind]

    def holds(value: Any) -> bool:
        try:
            return bool(compare(value, expected))
        except (TypeError, RecursionError):
            return False

    return Question(ast.unparse(left), holds)


def _is_question(node: ast.expr, bound: set[str]) -> bool:
    """Whether a node is a call `name(…)` of the candidate's, which may be judged by its value alone.

    A builtin around the candidate's call belongs to the test (`len(f(x))`, `all(…)`), so the candidate's
    process must not evaluate it; one around nothing is a candidate that has a builtin's name. A method of
    what the candidate returns is no part of the test either: the candidate would answer for both.
    """
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    if names & bound:
        return False
    return node.func.id not in BUILTINS or names <= BUILTINS
