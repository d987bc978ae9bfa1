"""A scripted model that can be made worse from outside, and that counts how often it is asked.

Files in the home folder say how it behaves, so that it is the same in a worker's process: `worse` makes it forget half
of the questions, `dies-after` says how many answers it gives before it fails, `noisy` holds a word that decides which
one in ten it gets wrong, `asked` has a line a question.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

from reasoner.ids import derived_seed
from reasoner.records import GenerationRequest
from tests.support.solver import known, solve


def home() -> Path:
    return Path(os.environ["REASONER_HOME"])


def prose(request: GenerationRequest) -> str:
    """As `drifting`, but always right by itself, and in prose, which needs no sandbox."""
    return _behaving(request, lambda: f"Chain of Thought: The answer is {known()[_question(request)].gold}.")


def drifting(request: GenerationRequest) -> str:
    """As `tests.support.solver.solve`, while the files in the home folder let it."""
    return _behaving(request, lambda: solve(request))


def _question(request: GenerationRequest) -> str:
    return re.findall(r"Problem: (.*)", request.prompt)[-1].strip()


def _behaving(request: GenerationRequest, answer: Callable[[], str]) -> str:
    with (home() / "asked").open("a") as log:
        log.write(f"{request.problem_id}\n")
    limit = home() / "dies-after"
    if limit.exists() and asked(home()) > int(limit.read_text()):
        raise MemoryError("made to die here")
    if (home() / "worse").exists() and derived_seed("worse", request.problem_id) % 2:
        return "I do not know."
    word = (home() / "noisy").read_text() if (home() / "noisy").exists() else ""
    if word and derived_seed("noisy", word, request.problem_id) % 10 == 0:
        return "I am not sure."
    return answer()


def asked(folder: Path) -> int:
    """How many answers the scripted model has given in a home folder."""
    return len((folder / "asked").read_text().splitlines())
