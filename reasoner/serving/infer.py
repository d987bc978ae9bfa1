"""Plans and answers questions through a server: the adapter plans, the bare base works (METHODS 4.7)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.errors import DataError
from reasoner.methods.planner.answers import final_answer
from reasoner.methods.planner.pipeline import PipelineExecutor, PipelineResult, Planned
from reasoner.methods.planner.prompts import PlannerPrompts
from reasoner.methods.planner.worker import FrozenWorker
from reasoner.problems.files import read_file
from reasoner.records import GenerationRequest, Record, Sampling
from reasoner.serving.client import Server, render_messages
from reasoner.verifiers.numbers import canonical_number


@dataclass(frozen=True, slots=True)
class Inferred(Record):
    """One question answered; `answer` is the number as text, or None."""

    question: str
    answer: str | None
    valid_plan: bool
    should_decompose: bool
    subproblems: tuple[str, ...]
    plan: str
    planner_output: str
    calls: tuple[dict[str, Any], ...]
    planner_tokens: int
    worker_tokens: int


class Inference:
    """The pipeline on a server. Planner and worker get the same number of tokens and temperature."""

    def __init__(self, server: Server, prompts: PlannerPrompts, sampling: Sampling) -> None:
        self._server, self._prompts, self._sampling = server, prompts, sampling
        worker = FrozenWorker(server.complete, render_messages, prompts, sampling)
        self._executor = PipelineExecutor(worker)

    def answer(self, questions: Sequence[str]) -> list[Inferred]:
        """All questions, in their order: every plan first, then the worker in two waves."""
        requests = []
        for number, question in enumerate(questions):
            text, special = render_messages(self._prompts.plan(question))
            requests.append(
                GenerationRequest(str(number), text, self._sampling, 0, 0, self._server.adapter, special)
            )
        plans = self._server.complete(requests)
        items = [Planned(str(i), q, p.text) for i, (q, p) in enumerate(zip(questions, plans, strict=True))]
        results = self._executor.execute_batch(items)
        return [
            _inferred(item, plan.completion_tokens, result)
            for item, plan, result in zip(items, plans, results, strict=True)
        ]


def read_questions(path: Path) -> list[str]:
    """The questions of a file: the column `question` of a data file, or the lines of a text file."""
    if path.suffix.lower() == ".txt":
        if not path.is_file():
            raise DataError(f"{path}: does not exist")
        found = [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    else:
        rows = [row for _, row in read_file(path).rows]
        if missing := next((i for i, row in enumerate(rows, 1) if not row.get("question")), 0):
            raise DataError(f"{path}: row {missing} has no `question`")
        found = [str(row["question"]) for row in rows]
    if not found:
        raise DataError(f"{path}: holds no questions")
    return found


def _inferred(item: Planned, planner_tokens: int, result: PipelineResult) -> Inferred:
    plan, value = result.plan, None if result.text is None else final_answer(result.text)
    return Inferred(
        question=item.question,
        answer=None if value is None else canonical_number(value),
        valid_plan=plan is not None,
        should_decompose=result.decomposed,
        subproblems=plan.subproblems if plan else (),
        plan=plan.plan if plan else "",
        planner_output=item.output,
        calls=tuple(call.to_row() for call in result.calls),
        planner_tokens=planner_tokens,
        worker_tokens=result.worker_tokens,
    )
