"""A scripted model that can be made worse from outside, and that counts how often it is asked.

Files in the home folder say how it behaves, so that it is the same in a worker's process: `worse` makes it forget half
of the questions, `noisy` holds a word that decides which one in ten it gets wrong, `asked` has a line a question.
"""

import os
from pathlib import Path

from reasoner.ids import derived_seed
from reasoner.records import GenerationRequest
from tests.support.solver import solve


def home() -> Path:
    return Path(os.environ["REASONER_HOME"])


def drifting(request: GenerationRequest) -> str:
    """As `tests.support.solver.solve`, while the files in the home folder let it."""
    with (home() / "asked").open("a") as log:
        log.write(f"{request.problem_id}\n")
    if (home() / "worse").exists() and derived_seed("worse", request.problem_id) % 2:
        return "I do not know."
    word = (home() / "noisy").read_text() if (home() / "noisy").exists() else ""
    if word and derived_seed("noisy", word, request.problem_id) % 10 == 0:
        return "I am not sure."
    return solve(request)


def asked(folder: Path) -> int:
    """How many answers the scripted model has given in a home folder."""
    return len((folder / "asked").read_text().splitlines())
