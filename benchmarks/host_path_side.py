"""One side of `host_path.py`: generation stages of one checkout, on order.

    python benchmarks/host_path_side.py SETTINGS_JSON      (started by host_path.py)

Orders: {"do": "round", "number": N}, {"do": "profile"}, {"do": "end"}.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

GIVEN: dict[str, Any] = json.loads(sys.argv[1])
sys.path.insert(0, GIVEN["root"])  # the checkout that is measured, before the one that is installed

import psutil  # noqa: E402
from shapes import SHAPES  # noqa: E402
from turns import Channel, serve  # noqa: E402

import reasoner  # noqa: E402
from reasoner.config.smart import EngineConfig, SamplingConfig  # noqa: E402
from reasoner.engines.pool import EnginePool  # noqa: E402
from reasoner.engines.protocol import Engine, EngineSettings  # noqa: E402
from reasoner.engines.remote import RemoteEngine  # noqa: E402
from reasoner.engines.start import open_engine  # noqa: E402
from reasoner.home import Home  # noqa: E402
from reasoner.records import Problem  # noqa: E402
from reasoner.stages.generation import Ask, generate  # noqa: E402
from reasoner.workbench import ModelFolder, Workbench, engine_settings  # noqa: E402


class OneEngine(EnginePool):
    """The engine that was started, whoever asks; of a script, too, in a process of its own."""

    def __init__(self, engine: Engine, logs: Path) -> None:
        super().__init__(logs)
        self.one = engine

    def acquire(self, settings: EngineSettings) -> Engine:
        return self.one


class Stages:
    """Stages of the shape that is asked for, each in a home of its own."""

    def __init__(self) -> None:
        self.room = Path(GIVEN["room"])
        scripted = {"script": "null_answer:answer"}
        self.config = EngineConfig(
            kind="vllm" if GIVEN["model"] else "scripted",
            options=GIVEN["options"] if GIVEN["model"] else scripted,
        )
        self.model = ModelFolder(Path(GIVEN["model"] or "."), "0" * 64, "bench")
        self.settings = engine_settings(self.model, self.config)
        self.shape = SHAPES[GIVEN["shape"]].scaled(GIVEN["prompts"], GIVEN["length"])

    def run(self, engine: Engine, name: str) -> int:
        """One stage; returns how many requests it made."""
        home = Home(self.room / name)
        work = home.work / "stage"
        work.mkdir(parents=True)
        load = self.shape.load(int(name.split("-")[-1]))
        texts = load.prompts[:: self.shape.samples]
        asks = [Ask(Problem.make(text[-200:], "1", "bench"), text, True) for text in texts]
        bench = Workbench(home, OneEngine(engine, work), work, work, lambda *_: None)
        decoding = SamplingConfig(temperature=load.temperature, max_tokens=max(load.lengths))
        facts = generate(work, bench, asks, self.model, self.config, decoding, self.shape.samples, 0)
        return int(facts["owed"])


def processor_seconds(pid: int) -> float:
    """Of a process and of all that it started."""
    whole = psutil.Process(pid)
    return sum(sum(p.cpu_times()[:2]) for p in [whole, *whole.children(recursive=True)])


def run(channel: Channel) -> None:
    """Start the engine and carry orders out."""
    assert Path(reasoner.__file__).is_relative_to(GIVEN["root"]), reasoner.__file__
    stages = Stages()
    stages.room.mkdir(parents=True)
    engine = RemoteEngine(stages.settings, log=stages.room / "engine.log")
    assert engine.pid
    channel.answer(ready=True)
    for order in channel.orders():
        if order["do"] == "profile":
            channel.answer(**profiles(stages, engine))
            continue
        theirs, own, started = processor_seconds(engine.pid), time.process_time(), time.monotonic()
        requests = stages.run(engine, f"round-{order['number']}")
        seconds, own = time.monotonic() - started, time.process_time() - own
        theirs = processor_seconds(engine.pid) - theirs
        channel.answer(
            requests=requests, requests_per_second=requests / seconds, stage_ms=1000 * own / requests,
            engine_ms=1000 * theirs / requests,
        )  # fmt: skip
    engine.close()


def profiles(stages: Stages, engine: RemoteEngine) -> dict[str, Any]:
    """Functions of the stage's process, and of a stage whose engine is in the same process."""
    from paced import functions_of

    stage = functions_of(lambda: stages.run(engine, "profile-1001"))
    engine.close()
    inside = open_engine(stages.settings, log=stages.room / "inside.log", in_process=True)
    stages.run(inside, "warm-1002")
    return {"stage": stage, "one_process": functions_of(lambda: stages.run(inside, "profile-1003"))}


if __name__ == "__main__":
    serve(run)
