"""One problem planned, carried out and judged: what targets are chosen from and arms are measured by."""

from dataclasses import dataclass
from typing import Any

from reasoner.methods.planner.answers import judge
from reasoner.methods.planner.pipeline import PipelineResult
from reasoner.methods.planner.plan import Plan
from reasoner.methods.planner.worker import Role
from reasoner.records import Outcome, Record, Verdict


@dataclass(frozen=True, slots=True)
class Episode(Record):
    """`planner_tokens` is 0 where nothing planned. `sequential_tokens` are those on the longest path: the plan, the
    longest sub-problem, the combination; sub-problems run side by side."""

    problem_id: str
    question: str
    gold: str
    plan: Plan | None
    reason: str
    extra_text: bool
    planner_tokens: int
    worker_tokens: int
    sequential_tokens: int
    truncated_calls: int
    verdict: Verdict

    @property
    def scored(self) -> bool:
        return self.verdict.outcome != Outcome.UNSCORED

    @property
    def decomposed(self) -> bool:
        return self.plan is not None and self.plan.should_decompose

    @property
    def tokens(self) -> int:
        """All generated tokens."""
        return self.planner_tokens + self.worker_tokens


def run_row(question: str, gold: str, planner_tokens: int, result: PipelineResult) -> dict[str, Any]:
    """What a stage that generates leaves of one run; nothing is judged in it."""
    return {"question": question, "gold": gold, "planner_tokens": planner_tokens, **result.to_row()}


def episode_of(row: dict[str, Any]) -> Episode:
    """Judge a run's row; needs no accelerator."""
    result, planner = PipelineResult.from_row(row), int(row["planner_tokens"])
    parts = [call.tokens for call in result.calls if call.role != Role.COMBINE]
    joins = [call.tokens for call in result.calls if call.role == Role.COMBINE]
    verdict = judge(result.text, row["gold"])
    return Episode(
        problem_id=result.problem_id,
        question=row["question"],
        gold=row["gold"],
        plan=result.plan,
        reason=result.reason,
        extra_text=result.extra_text,
        planner_tokens=planner,
        worker_tokens=result.worker_tokens,
        sequential_tokens=planner + max(parts, default=0) + sum(joins),
        truncated_calls=result.truncated_calls,
        verdict=verdict,
    )
