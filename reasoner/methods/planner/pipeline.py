"""Carries plans out with the frozen worker (METHODS 4.1), a whole batch in two waves.

Wave 1: every sub-problem and every direct solution. Wave 2: the combinations. A sub-problem is solved without
the others' solutions, so one that needs an earlier result cannot work; that is why independence is rewarded.
An invalid plan has no answer and calls nobody.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from reasoner.methods.planner.answers import worked_solution
from reasoner.methods.planner.independence import NEUTRAL, Embed, independences
from reasoner.methods.planner.plan import ParsedPlan, Plan, parse_plan
from reasoner.methods.planner.worker import Answered, Call, FrozenWorker
from reasoner.records import Record


@dataclass(frozen=True, slots=True)
class Planned:
    """One problem and what the planner wrote for it."""

    problem_id: str
    question: str
    output: str


@dataclass(frozen=True, slots=True)
class PipelineResult(Record):
    """What became of one plan. `text` is the worker's last text, or None where the plan is invalid."""

    problem_id: str
    plan: Plan | None
    reason: str
    """The parser's word: `ok`, or why there is no plan."""
    extra_text: bool
    calls: tuple[Answered, ...]
    text: str | None

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "PipelineResult":
        """Also from a row with further columns."""
        known = {f.name for f in dataclasses.fields(cls)}
        return _READER.validate_python({name: value for name, value in row.items() if name in known})

    @property
    def decomposed(self) -> bool:
        return self.plan is not None and self.plan.should_decompose

    @property
    def worker_tokens(self) -> int:
        """Tokens that the worker generated."""
        return sum(call.tokens for call in self.calls)

    @property
    def truncated_calls(self) -> int:
        """Worker calls that were cut at the token limit."""
        return sum(call.truncated for call in self.calls)


_READER = TypeAdapter(PipelineResult)


class PipelineExecutor:
    """The original's three methods, and `execute_batch` for many plans at once."""

    def __init__(self, worker: FrozenWorker, embed: Embed | None = None) -> None:
        """`embed` unset: independence is always neutral."""
        self.worker = worker
        self._embed = embed

    def parse_planner_output(self, text: str) -> ParsedPlan:
        """The strict plan in a planner's text."""
        return parse_plan(text)

    def execute_pipeline(self, question: str, output: str, problem_id: str = "") -> PipelineResult:
        """Parse one planner's text and carry it out."""
        return self.execute_batch([Planned(problem_id, question, output)])[0]

    def compute_independence(self, subproblems: Sequence[str], *, clip: bool = True) -> float:
        """In [0, 1]: 0 for identical sub-problems; 0.5 for fewer than two. Without `clip` up to 2."""
        return self.compute_independences([subproblems], clip=clip)[0]

    def compute_independences(self, plans: Sequence[Sequence[str]], *, clip: bool = True) -> list[float]:
        """`compute_independence` of many plans, with all their texts embedded in one call."""
        if self._embed is None:
            return [NEUTRAL] * len(plans)
        return independences(self._embed, plans, clip=clip)

    def execute_batch(self, items: Sequence[Planned]) -> list[PipelineResult]:
        """Carry out all plans; the worker is asked in two batches, however many plans there are."""
        parsed = [self.parse_planner_output(item.output) for item in items]
        first: list[Call] = []
        spans: list[tuple[int, int]] = []
        for item, found in zip(items, parsed, strict=True):
            start = len(first)
            first.extend(self._first_calls(item, found.plan))
            spans.append((start, len(first)))
        answered = self.worker.answer(first)
        parts = [tuple(answered[start:end]) for start, end in spans]
        joined = [i for i, found in enumerate(parsed) if found.plan and found.plan.should_decompose]
        second = [self._combine(items[i], parsed[i].plan, parts[i]) for i in joined]
        combined = dict(zip(joined, self.worker.answer(second), strict=True))
        results = []
        for i, (item, found) in enumerate(zip(items, parsed, strict=True)):
            calls = (*parts[i], combined[i]) if i in combined else parts[i]
            text = calls[-1].text if calls else None
            results.append(
                PipelineResult(item.problem_id, found.plan, found.reason, found.extra_text, calls, text)
            )
        return results

    def _first_calls(self, item: Planned, plan: Plan | None) -> list[Call]:
        if plan is None:
            return []
        if not plan.should_decompose:
            return [self.worker.direct_call(item.question, item.problem_id)]
        return [
            self.worker.subproblem_call(item.question, part, item.problem_id) for part in plan.subproblems
        ]

    def _combine(self, item: Planned, plan: Plan | None, parts: Sequence[Answered]) -> Call:
        assert plan is not None
        solutions = [worked_solution(part.text) for part in parts]
        return self.worker.combine_call(item.question, plan.subproblems, solutions, item.problem_id)
