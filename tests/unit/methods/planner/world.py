"""A worker without a model: it answers by script, and tells what it was asked, in which batch."""

import json
from collections.abc import Callable, Sequence

from reasoner.methods.planner.pipeline import PipelineExecutor
from reasoner.methods.planner.prompts import load_prompts
from reasoner.methods.planner.worker import FrozenWorker
from reasoner.prompts.policy import Message
from reasoner.records import Completion, GenerationRequest, Sampling

ATOMIC = '{"should_decompose": false, "subproblems": [], "plan": "add"}'


def split(*parts: str) -> str:
    return json.dumps({"should_decompose": True, "subproblems": list(parts), "plan": "then add"})


class Script:
    """Records every batch. `answers` says what the worker writes, by prompt."""

    def __init__(
        self, answers: Callable[[str], str], finish: str = "stop", tokens: int | None = None
    ) -> None:
        self.answers, self.finish, self.tokens = answers, finish, tokens
        self.batches: list[list[GenerationRequest]] = []

    def __call__(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        self.batches.append(list(requests))
        return [self._complete(self.answers(r.prompt)) for r in requests]

    def _complete(self, text: str) -> Completion:
        return Completion(text, self.finish, 1, len(text.split()) if self.tokens is None else self.tokens)


def render(messages: Sequence[Message]) -> tuple[str, bool]:
    return "".join(f"<{m['role']}>{m['content']}" for m in messages), False


def worker(script: Script, temperature: float = 0.0) -> FrozenWorker:
    return FrozenWorker(script, render, load_prompts(), Sampling(temperature, max_tokens=64))


def one_hot(texts: Sequence[str]) -> list[list[float]]:
    """Texts embedded by their first letter: equal letters are the same, others are orthogonal."""
    return [[float(ord(t[0]) % 64 == i) for i in range(64)] for t in texts]


def executor(script: Script, temperature: float = 0.0) -> PipelineExecutor:
    return PipelineExecutor(worker(script, temperature), one_hot)
