"""Answers of scripted engines: one token whose id says which adapter answered."""

from reasoner.records import Completion, GenerationRequest


def versioned(request: GenerationRequest) -> Completion:
    """The text is the adapter's name inside the engine."""
    text = request.adapter or "base"
    return Completion(f"{text} {request.prompt}", "stop", 1, 1, (7,), (-0.5,))


def infinite(request: GenerationRequest) -> Completion:
    return Completion("x", "stop", 1, 1, (7,), (float("-inf"),))


def empty(request: GenerationRequest) -> Completion:
    return Completion("", "stop", 1, 0)
