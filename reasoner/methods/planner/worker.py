"""The frozen worker: the bare base model, which solves sub-problems, combines solutions, or solves directly.

It answers through any function from requests to completions: an engine, the ledger, the on-policy sampler or
a server. Requests name no adapter. Calls are made in batches; greedy calls with the same text are made once.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from reasoner.engines.protocol import Engine
from reasoner.errors import EngineError
from reasoner.ids import content_hash
from reasoner.methods.planner.answers import worked_solution
from reasoner.methods.planner.prompts import PlannerPrompts
from reasoner.prompts.policy import Message
from reasoner.records import Completion, GenerationRequest, Record, Sampling

Render = Callable[[Sequence[Message]], tuple[str, bool]]
"""A conversation as (text, whether special tokens are to be added): `ChatRenderer.render`."""
Complete = Callable[[Sequence[GenerationRequest]], list[Completion]]
"""Completions of all requests, in their order."""


class Role(StrEnum):
    """What a worker's call was for."""

    SUBPROBLEM = "subproblem"
    COMBINE = "combine"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Call:
    """One wanted call of the worker."""

    role: Role
    messages: tuple[Message, ...]
    problem_id: str = ""


@dataclass(frozen=True, slots=True)
class Answered(Record):
    """One answered call: the worker's own text, its tokens, and whether it was cut at the limit."""

    role: str
    text: str
    tokens: int
    truncated: bool


class FrozenWorker:
    """Executes parts of a plan with the base model. The original's methods, and `answer` for a whole wave."""

    def __init__(
        self,
        complete: Complete,
        render: Render,
        prompts: PlannerPrompts,
        sampling: Sampling,
        *,
        seed: int = 0,
    ) -> None:
        self.prompts, self.sampling, self.seed = prompts, sampling, seed
        self._complete, self._render = complete, render

    def solve_subproblem(self, question: str, subproblem: str) -> str:
        """The worked solution of one sub-problem, made without knowledge of the others."""
        return worked_solution(self.answer([self.subproblem_call(question, subproblem)])[0].text)

    def combine_solutions(self, question: str, subproblems: Sequence[str], solutions: Sequence[str]) -> str:
        """The worker's text that combines the parts."""
        return self.answer([self.combine_call(question, subproblems, solutions)])[0].text

    def solve_directly(self, question: str) -> str:
        """The worker's text that solves the whole problem at once."""
        return self.answer([self.direct_call(question)])[0].text

    def subproblem_call(self, question: str, subproblem: str, problem_id: str = "") -> Call:
        messages = self.prompts.subproblem(question, subproblem)
        return Call(Role.SUBPROBLEM, tuple(messages), problem_id)

    def combine_call(
        self,
        question: str,
        subproblems: Sequence[str],
        solutions: Sequence[str],
        problem_id: str = "",
    ) -> Call:
        messages = self.prompts.combination(question, subproblems, solutions)
        return Call(Role.COMBINE, tuple(messages), problem_id)

    def direct_call(self, question: str, problem_id: str = "") -> Call:
        return Call(Role.DIRECT, tuple(self.prompts.direct(question)), problem_id)

    def answer(self, calls: Sequence[Call]) -> list[Answered]:
        """All calls in one batch, in their order. Raises EngineError for a call that failed."""
        wanted: dict[tuple[str, str, int], GenerationRequest] = {}
        keys = []
        drawn: Counter[str] = Counter()
        for call in calls:
            text, special = self._render(call.messages)
            # Sampled calls of one text must differ: every plan of a group draws its own.
            index = 0 if self.sampling.temperature == 0 else drawn[text]
            drawn[text] += 1
            name = call.problem_id or content_hash(text, 16)
            key = (name, text, index)
            wanted.setdefault(
                key, GenerationRequest(name, text, self.sampling, self.seed, index, "", special)
            )
            keys.append(key)
        if not wanted:
            return []
        done = dict(zip(wanted, self._complete(list(wanted.values())), strict=True))
        return [_answered(call, done[key]) for call, key in zip(calls, keys, strict=True)]


def ask_engine(engine: Engine) -> Complete:
    """An engine as the function that the worker needs."""

    def complete(requests: Sequence[GenerationRequest]) -> list[Completion]:
        found = dict(engine.generate(requests))
        return [found[i] for i in range(len(requests))]

    return complete


def _answered(call: Call, done: Completion) -> Answered:
    if done.finish not in ("stop", "length"):
        raise EngineError(f"a worker's call ({call.role}) ended with {done.finish!r}: {done.text[:120]}")
    return Answered(str(call.role), done.text, done.completion_tokens, done.finish == "length")
