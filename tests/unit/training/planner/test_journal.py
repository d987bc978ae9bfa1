"""What W&B gets of a step. Wrong if a number, the rewards or the plans of a step are lost or stand at another step."""

import json
from pathlib import Path

import pytest

from reasoner.tracking import Run, Tracking, tracked
from reasoner.training.grpo.journal import EXAMPLES, METRICS, Journal, read_rows
from reasoner.training.planner.spec import PlannerGrpoSpec
from tests.support import wandb_files
from tests.unit.training.planner.planning import make_grpo

ROWS = [
    {"problem_id": "a", "plan": "add", "parts": ["x"], "reward": 1.0},
    {"problem_id": "a", "plan": "no plan", "parts": [], "reward": None},
    {"problem_id": "b", "plan": "halve", "parts": [], "reward": 0.5},
]


def test_a_step_is_shown_with_its_rewards_and_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    with tracked(Tracking("planner", "", tmp_path, run_id="key"), lambda line: None) as run:
        journal = Journal(tmp_path, 2, run, "planner")
        for step in (1, 2):
            journal.rollout({"step": step, "rows": ROWS})
            journal.step(step, {"loss": step / 4, "broken": float("nan")})
    first, second = wandb_files.history(tmp_path)
    assert (first["loss"], first["_step"], second["loss"], second["_step"]) == (0.25, 1, 0.5, 2)
    assert "broken" not in first
    assert sum(first["planner/reward_distribution/values"]) == 2, "a plan without a reward is in no histogram"
    tables = [json.loads(path.read_text()) for path in tmp_path.rglob("*.table.json")]
    assert tables[0]["columns"] == list(ROWS[0])
    assert tables[0]["data"] == [["a", "add", '["x"]', 1.0], ["b", "halve", "[]", 0.5]]


def test_the_files_are_written_without_wandb(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 2, Run(), "planner")
    journal.rollout({"step": 1, "rows": ROWS})
    journal.step(1, {"loss": 0.25})
    assert read_rows(tmp_path / METRICS) == [{"step": 1, "loss": 0.25}]
    assert len(read_rows(tmp_path / EXAMPLES)) == 2 and not (tmp_path / "wandb").exists()


def test_a_spec_keeps_where_it_is_shown(tmp_path: Path) -> None:
    shown = Tracking("planner", "", tmp_path / "work", run_id="key")
    spec = make_grpo(tmp_path / "base", None, "planner", tmp_path, tracking=shown)
    assert PlannerGrpoSpec.load(spec.save(tmp_path / "grpo.json")).tracking == shown
