"""Code: the program of a response against its problem's tests, in the sandbox.

A problem's gold is the JSON list of its tests; its tags may hold `setup` (runs after the program) and `imports` (a JSON
list). All tests judge; `show_tests` says which of them the solver sees, and the rest are reported apart.

Several threads may ask at once and share `workers` sandboxes. A text is run once: whoever asks again, or meanwhile,
gets the same verdict, so that a program which never ends takes its time limit once, not for each question about it.
"""

import json
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from threading import Event, Lock
from typing import Any, Literal, Self

from reasoner.methods.multiturn.episode import MAX_NOTE, Judged
from reasoner.records import Problem
from reasoner.sandbox.sandbox import Sandbox
from reasoner.verifiers import code as judge
from reasoner.verifiers.asserts import plan_tests
from reasoner.verifiers.code import CodeItem, CodeVerdict, verify_code
from reasoner.verifiers.extract_code import defines, extract_code

KEPT = 2048
"""So many texts are remembered with their verdicts."""


class CodeEnvironment:
    """Judges in fresh sandboxes, `workers` at a time. Raises SandboxUnavailableError when it is made."""

    version = f"code-{judge.VERSION}"
    callers = 3

    def __init__(
        self, *, show_tests: Literal["none", "first", "all"] = "first", workers: int | None = None,
        timeout: float = 10.0,
    ) -> None:  # fmt: skip
        self._shown = {"none": 0, "first": 1, "all": None}[show_tests]
        self._timeout = timeout
        self._sandbox = Sandbox.detect()
        self._pool = ThreadPoolExecutor(
            workers or len(os.sched_getaffinity(0)), thread_name_prefix="environment"
        )
        self._closed, self._lock = Event(), Lock()
        self._verdicts: dict[CodeItem, Future[CodeVerdict]] = {}

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
        return [self._judged(found) for found in self._results(items)]

    def _results(self, items: Sequence[CodeItem]) -> list[CodeVerdict]:
        """The verdicts on all items, which are run side by side."""
        coming = [self._verdict(item) for item in items]
        return [verdict.result() for verdict in coming]

    def _verdict(self, item: CodeItem) -> Future[CodeVerdict]:
        """The verdict on an item, known or to come. What failed or is unscored is found anew."""
        with self._lock:
            found = self._verdicts.pop(item, None)
            if found is None or (found.done() and not _settled(found)):
                found = self._pool.submit(self._run, item)
            self._verdicts[item] = found  # the latest stands last
            while len(self._verdicts) > KEPT:
                self._verdicts.pop(next(iter(self._verdicts)))
            return found

    def _run(self, item: CodeItem) -> CodeVerdict:
        return verify_code(item, self._sandbox, timeout=self._timeout, cancel=self._closed)

    def tried(self, answers: Sequence[tuple[Problem, str]]) -> list[str | None]:
        """See `Environment.tried`. The shown tests are run for themselves: in a run of all of them a hidden one could
        end the program."""
        if self._shown == 0:
            return [None] * len(answers)
        items = [item_of(problem, text) for problem, text in answers]
        found = self._results([replace(item, tests=item.tests[: self._shown]) for item in items])
        return [None if f.verdict.outcome == "unscored" else _first_failure(f) for f in found]

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
        return Judged(found.verdict, unshown, found.signs, _first_failure(found))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """End what still runs."""
        self._closed.set()
        self._pool.shutdown(wait=True, cancel_futures=True)


def _first_failure(found: CodeVerdict) -> str:
    """What the first failed test said, or why none was reached; empty where all passed."""
    if found.verdict.correct:
        return ""
    failed = next((t for t in found.tests if not t.passed), None)
    return (f"{failed.reason}: {failed.test}" if failed else found.verdict.reason)[:MAX_NOTE]


def _settled(found: Future[CodeVerdict]) -> bool:
    """Whether a finished call has a verdict that another one would have, too."""
    return not found.cancelled() and not found.exception() and found.result().verdict.outcome != "unscored"


def tests_of(problem: Problem) -> list[str]:
    """The asserts of a problem."""
    return [str(test) for test in json.loads(problem.gold)]


def item_of(problem: Problem, text: str) -> CodeItem:
    """A response with the tests of its problem."""
    imports = json.loads(problem.tags.get("imports", "[]"))
    return CodeItem(text, tuple(tests_of(problem)), problem.tags.get("setup", ""), tuple(imports))
