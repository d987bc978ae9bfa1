"""Math: the answer in the last box of a response against the gold, by the grader in killable workers."""

from collections.abc import Iterable, Sequence
from typing import Any, Self

from reasoner.methods.multiturn.episode import Judged
from reasoner.records import Problem
from reasoner.verifiers import math as grader
from reasoner.verifiers.math import MathItem, gold_answer
from reasoner.verifiers.numbers import find_numbers, parse_number
from reasoner.verifiers.policy import MathPolicy
from reasoner.verifiers.pool import MathPool

POLICY = MathPolicy(stated="marked")
"""An answer must be boxed or marked: under reinforcement a number in passing must not score."""


class MathEnvironment:
    """Judges with workers that stay warm; they start at the first verdict."""

    version = f"math-{grader.VERSION}"
    callers = 1

    def __init__(self, *, workers: int | None = None, timeout: float = 10.0) -> None:
        self._workers, self._timeout = workers, timeout
        self._pool: MathPool | None = None

    def facts(self, problem: Problem) -> dict[str, Any]:
        """The question; there is no function and there are no tests."""
        return {"question": problem.question.strip(), "function": "", "tests": []}

    def judge(self, answers: Sequence[tuple[Problem, str]]) -> list[Judged]:
        """See `Environment.judge`. Raises InfrastructureError where no worker starts."""
        items = [MathItem(problem.gold, text) for problem, text in answers]
        return [Judged(verdict) for verdict in self._verdicts(items)]

    def tried(self, answers: Sequence[tuple[Problem, str]]) -> list[str | None]:
        """There are no tests."""
        return [None] * len(answers)

    def reveals(self, texts: Sequence[tuple[Problem, str]]) -> list[bool]:
        """Whether the gold stands in the text: as the same number, or letter by letter. An upper bound of leaks:
        a small number may stand there for another reason."""
        return [holds_answer(problem.gold, text) for problem, text in texts]

    def _verdicts(self, items: Iterable[MathItem]) -> Iterable[Any]:
        if self._pool is None:
            self._pool = MathPool(workers=self._workers, timeout=self._timeout, policy=POLICY)
        return self._pool.verdicts(items)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None


def holds_answer(gold: str, text: str) -> bool:
    """Whether `text` contains the gold answer, as a number of the same value or as the same characters."""
    answer = gold_answer(gold, POLICY) or gold
    number = parse_number(answer)
    if number is not None:
        return any(found.value == number for found in find_numbers(text))
    wanted = _squeezed(answer)
    return len(wanted) > 1 and wanted in _squeezed(text)


def _squeezed(text: str) -> str:
    """Without spaces, dollar signs and the size words of LaTeX brackets."""
    for word in ("\\left", "\\right", "\\dfrac", "\\tfrac", "$", "\\,", "\\!"):
        text = text.replace(word, "\\frac" if word.endswith("frac") else "")
    return "".join(text.split())
