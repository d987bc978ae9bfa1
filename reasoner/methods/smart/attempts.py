"""One verified attempt at a problem: a few-shot solution, or a sample of a policy."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from reasoner.errors import DataError
from reasoner.records import Outcome, Record, Strategy, Verdict

COMPLETE = "stop"
"""The `finish` of a completion that ended by itself."""


@dataclass(frozen=True, slots=True)
class Attempt(Record):
    """One solution with its verdict.

    Few-shot: `strategy` is the one that the exemplars showed, `solution` is `text`. Policy: both come from
    `parse.parse_response(text)`; `strategy` is None where the response names none. `turn` counts from 1;
    `tried` are the strategies that the prompt named as failed; `index` numbers the samples of one prompt.
    """

    problem_id: str
    strategy: Strategy | None
    turn: int
    tried: tuple[Strategy, ...]
    index: int
    text: str
    solution: str
    verdict: Verdict
    finish: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "strategy", None if self.strategy is None else Strategy(self.strategy))
        object.__setattr__(self, "tried", tuple(Strategy(name) for name in self.tried))

    @property
    def scored(self) -> bool:
        """Whether it is known to be right or wrong."""
        return self.verdict.outcome != Outcome.UNSCORED

    @property
    def right(self) -> bool:
        """Correct and in the format: a response that names no strategy counts as wrong (METHODS 2.8)."""
        return self.strategy is not None and self.verdict.correct

    @property
    def truncated(self) -> bool:
        """Whether the completion did not end by itself; such a text is never a training target."""
        return self.finish != COMPLETE

    def to_row(self) -> dict[str, Any]:
        """Plain data. The verdict's wall-clock time is left out: equal attempts have equal rows."""
        verdict = self.verdict
        return {
            "problem_id": self.problem_id,
            "strategy": None if self.strategy is None else self.strategy.value,
            "turn": self.turn,
            "tried": [name.value for name in self.tried],
            "index": self.index,
            "text": self.text,
            "solution": self.solution,
            "verdict": {
                "outcome": verdict.outcome.value,
                "reason": verdict.reason,
                "extracted": verdict.extracted,
            },
            "finish": self.finish,
        }

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Attempt":
        try:
            fields = {**row, "tried": tuple(row["tried"]), "verdict": Verdict.from_row(row["verdict"])}
            return cls(**{name: fields[name] for name in cls.__dataclass_fields__})
        except (KeyError, ValueError) as error:
            kind = "lacks" if isinstance(error, KeyError) else "is not one of ours:"
            raise DataError(
                f"a row of attempts {kind} {error}; make the attempts anew with this version"
            ) from error


def by_problem(attempts: Iterable[Attempt]) -> dict[str, list[Attempt]]:
    """Attempts by problem id; ids and attempts in an order that does not depend on the input's."""
    groups: defaultdict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        groups[attempt.problem_id].append(attempt)
    return {problem_id: sorted(groups[problem_id], key=_order) for problem_id in sorted(groups)}


def _order(attempt: Attempt) -> tuple[int, list[int], int, int]:
    return attempt.turn, [rank(name) for name in attempt.tried], attempt.index, rank(attempt.strategy)


def rank(strategy: Strategy | None) -> int:
    """The place of a strategy in the canonical order: chain, sub-questions, program, none."""
    members = list(Strategy)
    return len(members) if strategy is None else members.index(strategy)


def one_each(attempts: Iterable[Attempt], what: str) -> dict[str, Attempt]:
    """The only attempt at each problem. Raises DataError where a problem has two; `what` names them."""
    result: dict[str, Attempt] = {}
    for problem_id, group in by_problem(attempts).items():
        if len(group) > 1:
            raise DataError(f"{what}: problem {problem_id} has {len(group)} attempts where one is expected")
        result[problem_id] = group[0]
    return result


def few_shot_table(attempts: Iterable[Attempt]) -> dict[str, dict[Strategy, Attempt]]:
    """Few-shot attempts by problem and strategy.

    Raises DataError for two attempts at one problem with one strategy, and for one without a strategy.
    """
    table: dict[str, dict[Strategy, Attempt]] = {}
    for problem_id, group in by_problem(attempts).items():
        row = table.setdefault(problem_id, {})
        for attempt in sorted(group, key=lambda a: rank(a.strategy)):
            if attempt.strategy is None:
                raise DataError(f"few-shot attempts: problem {problem_id} has an attempt without a strategy")
            if attempt.strategy in row:
                raise DataError(
                    f"few-shot attempts: problem {problem_id} has two with {attempt.strategy.title}; give one"
                )
            row[attempt.strategy] = attempt
    return table
