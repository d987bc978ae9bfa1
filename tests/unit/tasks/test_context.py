"""What a run is told about its surroundings reaches them."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.tracking import TrackingConfig
from reasoner.config.training import ComputeConfig
from reasoner.engines import pool
from reasoner.engines.protocol import EngineSettings
from reasoner.errors import UsageError
from reasoner.home import Home
from tasks.context import bench, in_stage, run_context
from tests.support import wandb_files


def test_an_unused_engine_ends_after_the_configured_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float | None] = []
    plain = pool.open_engine

    def open_engine(settings: EngineSettings, **options: Any) -> Any:
        given.append(options["idle_seconds"])
        return plain(settings, **options)

    monkeypatch.setattr(pool, "open_engine", open_engine)
    settings = EngineSettings(
        "scripted", tmp_path, "auto", options={"script": "tests.unit.engines.scripts:echo"}
    )
    with run_context("run", home=Home(tmp_path / "home"), idle_seconds=7.5) as run:
        run.engines.acquire(settings)
    with run_context("run", home=Home(tmp_path / "home"), idle_seconds=0) as run:
        run.engines.acquire(settings)
        assert run.compute.idle_seconds == 0, "a stage on a pool is told so, too"
    assert given == [7.5, None]


def test_a_runs_trainings_and_evaluations_belong_together_in_wandb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    monkeypatch.setenv("WANDB_MODE", "offline")
    home = Home(tmp_path / "home")
    with run_context("smart-1", home=home, tracking=TrackingConfig(wandb=True, project="mine")) as run:
        with in_stage("key", "train epoch 1"):
            shown = bench().tracking
        assert shown is not None
        assert (shown.project, shown.group, shown.name, shown.job) == (
            "mine", "smart-1", "train epoch 1", "train",
        )  # fmt: skip
        with in_stage("key", "train epoch 1"):
            assert bench().tracking == shown, "resumed, it is the same W&B run"
        with in_stage("other", "train epoch 2"):
            again = bench().tracking
        assert again is not None and again.run_id != shown.run_id

        table = {"name": "held-out", "rows": [{"label": "epoch 1", "accuracy": {"value": 0.25}}]}
        with run.store.writer("evaluation") as draft:
            (draft.path / "evaluation.json").write_text(json.dumps(table))
        run.track([draft.ref])
    assert wandb_files.summary(run.folder)["held-out/epoch 1/accuracy/value"] == 0.25
    [written] = wandb_files.runs(run.folder)
    assert (written.run_group, written.job_type) == ("smart-1", "evaluation")
    assert "W&B: mine/smart-1, evaluation, offline" in capsys.readouterr().err


def test_without_asking_nothing_is_tracked(tmp_path: Path) -> None:
    with run_context("smart-1", home=Home(tmp_path / "home")) as run:
        with in_stage("key", "train epoch 1"):
            assert bench().tracking is None
        run.track([])
    assert not list(tmp_path.rglob("wandb"))


def test_a_run_is_refused_without_deepspeed_where_it_trains_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *of: None if name == "deepspeed" else find(name, *of)
    )
    home, compute = Home(tmp_path / "home"), ComputeConfig(processes=2, sharding="deepspeed")
    with (
        pytest.raises(UsageError, match="pip install deepspeed"),
        run_context("here", home=home, compute=compute),
    ):
        pass
    with run_context("there", home=home, compute=compute, gpu_pool="gpu"):
        pass
