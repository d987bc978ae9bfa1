"""Scripts that scripted engines of the tests run, in this process and in children."""

import os
import signal

from reasoner.process.owner import owner_is_dead
from reasoner.records import Completion, GenerationRequest


def echo(request: GenerationRequest) -> str:
    """The prompt, the sample's index and the adapter, so that a mixed-up answer shows."""
    return f"{request.prompt} #{request.index} @{request.adapter}"


def with_logprobs(request: GenerationRequest) -> Completion:
    return Completion("a b", "stop", 1, 2, (7, 8), (-0.5, -1.25))


def fails_on_p3(request: GenerationRequest) -> str:
    if request.problem_id == "p3":
        raise ValueError("no answer to p3")
    return request.prompt


def dies_on_p3(request: GenerationRequest) -> str:
    if request.problem_id == "p3":
        print("the last words of this engine", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return request.prompt


WATCHED = os.environ.get("REASONER_WATCHED", "")
ALIVE_AT_START = bool(WATCHED) and not owner_is_dead(WATCHED)


def neighbour(request: GenerationRequest) -> str:
    """Whether the process that REASONER_WATCHED names was alive when this engine was started."""
    return "alive" if ALIVE_AT_START else "gone"
