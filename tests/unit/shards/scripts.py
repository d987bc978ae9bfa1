"""An engine's script that counts: each answer leaves a line in the folder that the environment names."""

import os
import time
from pathlib import Path

from reasoner.records import GenerationRequest


def counting(request: GenerationRequest) -> str:
    with (Path(os.environ["REASONER_TEST_COUNT"]) / str(os.getpid())).open("a") as file:
        file.write(f"{request.problem_id} {request.index}\n")
    time.sleep(0.004)
    return f"answer {request.problem_id} {request.index}"


def failing(request: GenerationRequest) -> str:
    if request.problem_id == "p7":
        raise ValueError("p7 is too hard")
    return "fine"
