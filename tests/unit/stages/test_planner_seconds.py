"""Seconds of a planner's arms. Wrong if an engine's start or completions of another run count, or if none are there."""

import time
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.planner import WorkerConfig
from reasoner.config.smart import EngineConfig, SamplingConfig
from reasoner.config.training import ComputeConfig
from reasoner.engines.pool import EnginePool
from reasoner.home import Home
from reasoner.methods.planner.prompts import load_prompts
from reasoner.stages.planner import Desk, arm_names, arms, shared_seconds
from reasoner.workbench import ModelFolder, Workbench
from tests.support.tiny_llama import make_model
from tests.unit.training.planner.planning import problems, write_prompts


def test_the_workers_seconds_are_shared_by_tokens() -> None:
    def row(*tokens: int) -> dict[str, Any]:
        return {"calls": [{"tokens": count} for count in tokens]}

    runs = {"trained": [row(10, 20), row()], "atomic": [row(5), row(5)], "none": [row()]}
    planning = {"trained": 2.0, "atomic": 0.0, "none": 1.0}
    assert shared_seconds(planning, 8.0, runs) == {"trained": 8.0, "atomic": 2.0, "none": 1.0}
    assert shared_seconds({"none": 1.0}, 0.0, {"none": [row()]}) == {"none": 1.0}


class Started(Workbench):
    """A workbench whose engine takes two seconds more to start."""

    def engine(self, *given: Any, **more: Any) -> Any:
        began = time.monotonic()
        time.sleep(2)
        engine = super().engine(*given, **more)
        STARTS.append(time.monotonic() - began)
        return engine


STARTS: list[float] = []


@pytest.mark.timeout(300)
def test_arms_made_now_have_seconds_and_arms_from_the_ledger_none(tmp_path: Path) -> None:
    base, prompts = make_model(tmp_path / "base"), load_prompts(write_prompts(tmp_path))
    engine = EngineConfig(kind="transformers", dtype="float32", options={"max_model_len": 512})
    worker = WorkerConfig(decoding=SamplingConfig(max_tokens=4))
    facts, walls = [], []
    for turn in ("made", "found"):
        (tmp_path / turn).mkdir()
        with EnginePool(tmp_path / "logs") as pool:
            bench = Started(
                Home(tmp_path / "home"), pool, tmp_path / "work", tmp_path / "logs", lambda *_: None,
                compute=ComputeConfig(),
            )  # fmt: skip
            with Desk(bench, ModelFolder(base, "print", "tiny"), engine, worker, prompts, None) as desk:
                began = time.monotonic()
                names = arm_names(trained=False)
                facts.append(arms(tmp_path / turn, desk, problems(3), names, SamplingConfig(max_tokens=8)))
                walls.append(time.monotonic() - began)
    seconds = facts[0]["arm_seconds"]
    assert list(seconds) == ["untrained", "atomic", "decomposed"]
    assert seconds["untrained"] > 0 and seconds["atomic"] > 0
    assert 0 < sum(seconds.values()) <= walls[0] - sum(STARTS) + 0.01
    assert facts[1]["owed"] == 0 and "arm_seconds" not in facts[1]
    for name in names:
        made, found = ((tmp_path / turn / f"runs-{name}.jsonl").read_bytes() for turn in ("made", "found"))
        assert made == found
