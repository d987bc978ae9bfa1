"""Training records before they are rendered: what is to be learnt, not how the prompt says it."""

from dataclasses import dataclass
from typing import Any

from reasoner.ids import content_hash
from reasoner.records import Record, Strategy

DIRECT = "direct"
REFINE = "refine"
NO_SOLUTION = "(no solution)"
"""Stands for the failed solution of a response that ended behind the strategy's name."""


@dataclass(frozen=True, slots=True)
class SolutionRecord(Record):
    """`(tried) -> strategy: solution` for one question; the prompt is rendered from it later (METHODS 2.2).

    `tried` are the strategies that the prompt names as failed and `tried_solutions` their failed solutions,
    for `refine_context: full`. `kind` is `direct` (nothing tried) or `refine`.
    """

    problem_id: str
    question: str
    strategy: Strategy
    solution: str
    tried: tuple[Strategy, ...] = ()
    tried_solutions: tuple[str, ...] = ()
    kind: str = DIRECT

    def __post_init__(self) -> None:
        object.__setattr__(self, "strategy", Strategy(self.strategy))
        object.__setattr__(self, "tried", tuple(Strategy(name) for name in self.tried))
        object.__setattr__(self, "tried_solutions", tuple(self.tried_solutions))

    @property
    def id(self) -> str:
        """Hash of the whole record."""
        return content_hash(self, 32)

    def to_row(self) -> dict[str, Any]:
        return {
            "problem_id": self.problem_id,
            "question": self.question,
            "strategy": self.strategy.value,
            "solution": self.solution,
            "tried": [name.value for name in self.tried],
            "tried_solutions": list(self.tried_solutions),
            "kind": self.kind,
        }
