"""A script for the scripted engine that costs nothing: the same answer of 140 tokens to every request."""

from reasoner.records import Completion, GenerationRequest

STEP = "There are 12 red and 7 blue books on a shelf, so 12 + 7 = 19 books. "
DONE = Completion("Chain of Thought: " + STEP * 6 + "The answer is 152.", "stop", 120, 140)


def answer(request: GenerationRequest) -> Completion:
    """What a policy would say."""
    return DONE
