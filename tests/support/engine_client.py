"""A client of a kept engine in a process of its own: `python -m tests.support.engine_client HOME OWNER HOW`.

It prints the engine's pid once the engine has answered, and then, as HOW says: `leave` leaves it politely, `wait` stays
connected, `generate` has a generation going on, `fork` has forked a process that holds the connection, too.
"""

import os
import sys
import time
from pathlib import Path

from reasoner.engines.kept.slot import KeptSlot
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.remote import RemoteEngine
from reasoner.home import Home
from reasoner.records import GenerationRequest, Sampling

SCRIPT = {"script": "tests.unit.engines.scripts:echo", "delay": 0.01}
SETTINGS = EngineSettings("scripted", Path("."), adapters=True, options=SCRIPT)
FOREVER = 3600.0


def connect(slot: KeptSlot, settings: EngineSettings, note: Path) -> RemoteEngine:
    return RemoteEngine(settings, log=slot.log_of(settings), launch=lambda: slot.open(settings, note))


def main(home: str, owner: str, how: str) -> None:
    slot = KeptSlot(Home(Path(home)), owner, FOREVER, say=lambda line: print(line, flush=True))
    engine = connect(slot, SETTINGS, Path(home) / "note")
    engine.load_adapter("policy", Path(home))
    answers = engine.generate(
        [GenerationRequest("p", "one", Sampling(), 0, i, "policy") for i in range(10_000)]
    )
    next(answers)
    if how != "generate":
        answers.close()  # type: ignore[attr-defined]
    if how == "fork" and os.fork() == 0:
        time.sleep(FOREVER)
    print(engine.pid, flush=True)
    if how == "leave":
        engine.leave(FOREVER)
        slot.give_back()
    else:
        time.sleep(FOREVER)


if __name__ == "__main__":
    main(*sys.argv[1:])
