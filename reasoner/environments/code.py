"""Code: the program of a response against its problem's tests, in the sandbox.

A problem's gold is the JSON list of its tests; its tags may hold `setup` (runs after the program) and `imports` (a JSON
list). All tests judge; `show_tests` says which of them the solver sees, and the rest are reported apart.
"""

import json
from collections.abc import Sequence
from typing import Any, Literal, Self

from reasoner.methods.multiturn.episode import Judged
from reasoner.records import Problem
from reasoner.sandbox.sandbox import Sandbox
from reasoner.verifiers import code as judge
from reasoner.verifiers.asserts import plan_tests
from reasoner.verifiers.code import CodeItem, CodeVerdict, verify_codes
from reasoner.verifiers.extract_code import defines, extract_code

MAX_NOTE = 200


class CodeEnvironment:
    """Judges in fresh sandboxes, `workers` at a time. Raises SandboxUnavailableError when it is made."""

    version = f"code-{judge.VERSION}"

    def __init__(
        self, *, show_tests: Literal["none", "first", "all"] = "first", workers: int | None = None,
        timeout: float = 10.0,
    ) -> None:  # fmt: skip
        self._shown = {"none": 0, "first": 1, "all": None}[show_tests]
        self._workers, self._timeout = workers, timeout
        self._sandbox = Sandbox.detect()

    def facts(self, problem: Problem) -> dict[str, Any]:
        """The task, the function's name, which the tests alone know, and the tests that may be shown."""
        tests = tests_of(problem)
        return {
            "question": problem.question.strip(),
            "function": plan_tests(tests).function,
            "tests": tests[: self._shown],
        }

    def judge(self, answers: Sequence[tuple[Problem, str]]) -> list[Judged]:
        """See `Environment.judge`."""
        items = [item_of(problem, text) for problem, text in answers]
        found = verify_codes(items, workers=self._workers, timeout=self._timeout, sandbox=self._sandbox)
        return [self._judged(verdict) for verdict in found]

    def reveals(self, texts: Sequence[tuple[Problem, str]]) -> list[bool]:
        """Whether the text holds a program that passes all tests."""
        candidates = [i for i, (problem, text) in enumerate(texts) if self._has_program(problem, text)]
        verdicts = self.judge([texts[i] for i in candidates])
        right = {i for i, judged in zip(candidates, verdicts, strict=True) if judged.verdict.correct}
        return [i in right for i in range(len(texts))]

    def _has_program(self, problem: Problem, text: str) -> bool:
        function = plan_tests(tests_of(problem)).function
        return bool(function) and defines(extract_code(text, function).code, function)

    def _judged(self, found: CodeVerdict) -> Judged:
        unshown = None
        if self._shown is not None and len(found.tests) > self._shown:
            rest = found.tests[self._shown :]
            unshown = sum(t.passed for t in rest) / len(rest)
        elif self._shown is not None and found.verdict.outcome == "incorrect":
            unshown = 0.0  # it did not get as far as a test
        failed = next((t for t in found.tests if not t.passed), None)
        note = f"{failed.reason}: {failed.test}" if failed else found.verdict.reason
        return Judged(
            found.verdict, unshown, found.signs, note[:MAX_NOTE] if not found.verdict.correct else ""
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Sandboxes end with their programs."""


def tests_of(problem: Problem) -> list[str]:
    """The asserts of a problem."""
    return [str(test) for test in json.loads(problem.gold)]


def item_of(problem: Problem, text: str) -> CodeItem:
    """A response with the tests of its problem."""
    imports = json.loads(problem.tags.get("imports", "[]"))
    return CodeItem(text, tuple(tests_of(problem)), problem.tags.get("setup", ""), tuple(imports))
