"""How many engines a training samples with, and who makes room for them.

Wrong if a stage does not pass `compute.engines` on, if a process keeps spare memory on a card where an engine wakes, or
if that memory is given back where nobody needs it.
"""

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reasoner.config.planner import PlannerGrpoConfig, RewardConfig, WandbConfig, WorkerConfig
from reasoner.config.smart import EngineConfig, PromptConfig, SmartGrpoConfig, SmartVerifyConfig
from reasoner.config.training import ComputeConfig
from reasoner.stages import planner_records, training
from reasoner.training.grpo import sampling
from reasoner.training.grpo.sharing import shared_rollout


@pytest.mark.parametrize("method", ["smart", "planner"])
def test_a_stage_passes_them_on(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    def run(*given: Any) -> Any:
        told.extend(spec for spec in given if hasattr(spec, "samplers"))
        return SimpleNamespace(summary={})

    bench: Any = SimpleNamespace(
        work=tmp_path, logs=tmp_path, tracking=None, child_progress=None,
        compute=ComputeConfig(processes=2, engines=3),
        engines=SimpleNamespace(without_engine=contextlib.nullcontext),
    )  # fmt: skip
    model: Any = SimpleNamespace(path=tmp_path, name="base", fingerprint="f")
    if method == "smart":
        monkeypatch.setattr(training, "run_grpo", run)
        training.train_grpo(
            tmp_path, bench, [], model, grpo=SmartGrpoConfig(), prompt=PromptConfig(), verify=SmartVerifyConfig(),
            engine=EngineConfig(), seed=0,
        )  # fmt: skip
    else:
        monkeypatch.setattr(planner_records, "run_grpo", run)
        planner_records.train_grpo(
            tmp_path, bench, [], model, None, grpo=PlannerGrpoConfig(), worker=WorkerConfig(), reward=RewardConfig(),
            engine=EngineConfig(), wandb=WandbConfig(enabled=False), template="planner", seed=0,
        )  # fmt: skip
    assert [(spec.processes, spec.engines, spec.samplers) for spec in told] == [(2, 3, 3)]


@pytest.mark.parametrize("shared", [True, False])
def test_room_is_made_before_an_engine_wakes(shared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(sampling, "free_cached_memory", lambda: done.append("room"))
    mine = sampling.Sampling.__new__(sampling.Sampling)
    mine._spec = SimpleNamespace(grpo=SimpleNamespace(share_card=shared))  # type: ignore[assignment]

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        done.append("rollout")
        return {"text": prompts}

    assert shared_rollout(rollout, mine.make_room)(["a", "b"], None) == {"text": ["a", "b"]}
    assert done == (["room", "rollout"] if shared else ["rollout"])
