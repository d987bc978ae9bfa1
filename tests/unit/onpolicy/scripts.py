"""Answers of scripted engines: one token; the tiny base's tokenizer makes a token a byte and one in front."""

from reasoner.records import Completion, GenerationRequest


def _one(request: GenerationRequest, text: str, *, logprob: float = -0.5, finish: str = "stop") -> Completion:
    return Completion(text, finish, len(request.prompt.encode()) + 1, 1, (7,), (logprob,))


def named(request: GenerationRequest) -> Completion:
    """The text is the adapter's name and the prompt."""
    return _one(request, f"{request.adapter or 'base'} {request.prompt}")


def infinite(request: GenerationRequest) -> Completion:
    return _one(request, "x", logprob=float("-inf"))


def broken(request: GenerationRequest) -> Completion:
    return _one(request, "x", finish="error")
