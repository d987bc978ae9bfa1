"""An evaluation in a process of its own, to be killed: `python -m tests.unit.stages.interrupted ROOM DELAY`.

ROOM holds model/, problems/ and trained/; the answers go to its home, the episodes to out/. Every answer that the
engine gives is a line of calls.txt.
"""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from reasoner.engines.pool import EnginePool
from reasoner.home import Home
from reasoner.records import GenerationRequest
from reasoner.stages import multiturn as work
from reasoner.stages.multiturn_room import Cast
from reasoner.workbench import ModelFolder, Workbench
from tests.unit.stages import advised
from tests.unit.stages.test_multiturn import config

CALLS, REFUSED = "CALLS", "REFUSED"
"""Environment: the file that calls are written to, and the number of the call at which the engine fails."""


def answer(request: GenerationRequest) -> str:
    path = Path(os.environ[CALLS])
    made = path.read_text().count("\n") if path.is_file() else 0
    if made == int(os.environ.get(REFUSED, -1)):
        raise RuntimeError("the card is gone")
    with path.open("a") as out:
        out.write(f"{request.problem_id} {request.adapter} {request.seed} {request.index}\n")
    return advised.answer(request)


def evaluate(room: Path, delay: float = 0.0) -> dict[str, Any]:
    """The evaluation of the trained pair in `room`, as often as it takes."""
    os.environ[CALLS] = str(room / "calls.txt")
    script = {"script": "tests.unit.stages.interrupted:answer"}
    settings = config(engine={"kind": "scripted", "options": {**script, "delay": delay}})
    out = room / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with EnginePool(room / "logs") as engines:
        bench = Workbench(Home(room / "home"), engines, room / "work", room / "logs", lambda *_: None)
        cast = Cast(ModelFolder(room / "model", "f" * 64, "tiny"), None, room / "trained")
        return work.evaluate(out, bench, room / "problems", cast, settings)


if __name__ == "__main__":
    print(json.dumps(evaluate(Path(sys.argv[1]), float(sys.argv[2]))))
