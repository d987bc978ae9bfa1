"""What every environment does, and how one is opened."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, Self

from reasoner.methods.multiturn.episode import Judged
from reasoner.records import Problem


class Environment(Protocol):
    """Judges answers to problems. A context manager: its workers end with it."""

    version: str
    """Part of every key that holds verdicts."""
    callers: int
    """How many threads may ask it at once."""

    def facts(self, problem: Problem) -> dict[str, Any]:
        """What the prompts may say of a problem: `question`, `function`, `tests`."""

    def judge(self, answers: Sequence[tuple[Problem, str]]) -> list[Judged]:
        """One verdict an answer (the model's text alone), in order. An unreadable gold or a failed judge is
        unscored, never wrong."""

    def tried(self, answers: Sequence[tuple[Problem, str]]) -> list[str | None]:
        """What the tests that the solver sees say of each answer: the first failure, empty where all pass, None where
        nothing is known. Nothing else of a problem enters."""

    def reveals(self, texts: Sequence[tuple[Problem, str]]) -> list[bool]:
        """Whether each text (a feedback) contains the answer to its problem."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


def open_environment(
    env_type: Literal["math", "code"],
    *,
    show_tests: Literal["none", "first", "all"] = "first",
    workers: int | None = None,
    timeout: float = 10.0,
) -> Environment:
    """The environment of math answers or of programs; `workers` judge at once, `timeout` seconds an answer.

    Raises SandboxUnavailableError for code where programs can't be isolated.
    """
    if env_type == "math":
        from reasoner.environments.mathematics import MathEnvironment

        return MathEnvironment(workers=workers, timeout=timeout)
    from reasoner.environments.code import CodeEnvironment

    return CodeEnvironment(show_tests=show_tests, workers=workers, timeout=timeout)
