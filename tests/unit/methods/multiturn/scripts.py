"""A scripted solver and feedback writer for math, with the tokens of a real tokenizer."""

import functools
import re
from typing import Any

from reasoner.records import Completion, GenerationRequest
from tests.support.tiny_llama import make_tokenizer

calls: list[list[GenerationRequest]] = []


@functools.cache
def tokenizer() -> Any:
    return make_tokenizer()


def completion(request: GenerationRequest, text: str) -> Completion:
    ids = tuple(tokenizer()(text, add_special_tokens=False)["input_ids"])
    prompt = len(tokenizer()(request.prompt, add_special_tokens=request.add_special_tokens)["input_ids"])
    return Completion(text, "stop", prompt, len(ids), ids, tuple(-0.1 * (i + 1) for i in range(len(ids))))


def answer(request: GenerationRequest) -> Completion:
    """The first attempt says 1; feedback names the problem that it saw; with advice the refinement says 2, and repeats
    what it was told."""
    seen = re.search(r"Problem:\n(.*)", request.prompt)
    question = seen[1] if seen else "?"
    if "tutor" in request.prompt:
        return completion(request, f"advice on {question} number {request.index}")
    if "Earlier attempt:" not in request.prompt:
        return completion(request, "\\boxed{1}")
    told = re.search(r"Advice:\n(.*)", request.prompt)
    return completion(request, f"told [{told[1]}] so \\boxed{{2}}" if told else "told nothing so \\boxed{1}")


def hard_coded(request: GenerationRequest) -> Completion:
    """The first problem's program is right for a test of two, the second one's for none; feedback is a word."""
    if "reviews code" in request.prompt:
        return completion(request, "advice")
    return completion(
        request, f"```python\ndef double(n):\n    return {4 if 'first' in request.prompt else 5}\n```"
    )


def endless(request: GenerationRequest) -> Completion:
    """A program that never ends, another one a turn and a problem; feedback holds one, too."""
    turn = "advice" if "review" in request.prompt.split("Task:")[0] else "program"
    again = " again" if "your earlier program" in request.prompt else ""
    return completion(request, f"```python\ndef double(n):\n    while True: pass  # {turn}{again}\n```")


def miscounting(request: GenerationRequest) -> Completion:
    made = answer(request)
    return Completion(
        made.text, made.finish, made.prompt_tokens + 1, 1, made.token_ids[:1], made.logprobs[:1]
    )
