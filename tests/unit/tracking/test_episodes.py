"""What W&B gets of a multi-turn training. Wrong if a number or a table is lost, or if it begins without being asked."""

import json
from pathlib import Path
from typing import Any

import pytest

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.store.rows import write_rows
from reasoner.tracking.episodes import COLUMNS, MAX_ROWS, asked_for, send_finished
from tests.support import wandb_files
from tests.unit.methods.multiturn.making import episode


def config(**fields: Any) -> MultiTurnConfig:
    given = {"problems": {"train": {"name": "toy", "path": "x.csv"}}, "policy_lm": "tiny"}
    return MultiTurnConfig.model_validate({**given, "use_smart_corrections": True, **fields})


def test_a_finished_training_is_sent_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    trained, evaluated, folder = (tmp_path / name for name in ("trained", "evaluated", "run"))
    metrics = [{"step": 1, "acc_t1": 0.25, "done": 1, "total": 2}, {"step": 2, "acc_t1": 0.5}]
    old, new = ([episode(name, 0, 0, 1, leak=False).to_row()] for name in ("old", "new"))
    many = [episode("problem", i, 1, None).to_row() for i in range(MAX_ROWS + 3)]
    for path, rows in (
        (trained / "metrics.jsonl", metrics), (trained / "episodes" / "1.jsonl", old),
        (trained / "episodes" / "2.jsonl", new), (evaluated / "episodes.jsonl", many),
    ):  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        write_rows(path, rows)
    asked = config(use_wandb=True, project_name="mine", run_name="first")
    shown = asked_for(asked, folder)
    assert shown is not None
    send_finished(shown, asked, trained, evaluated, lambda line: None)

    logged = wandb_files.history(folder)
    assert [(row["iteration"], row["acc_t1"]) for row in logged if "acc_t1" in row] == [(1, 0.25), (2, 0.5)]
    assert not any({"done", "total"} & set(row) for row in logged)
    tables = {path.name.split("_")[0]: json.loads(path.read_text()) for path in folder.rglob("*.table.json")}
    assert set(tables) == {"episodes", "evaluation"} and tables["episodes"]["columns"] == list(COLUMNS)
    assert tables["episodes"]["data"] == [["new", 0, "a", 0.0, "b", "c", 1.0, False]]
    assert len(tables["evaluation"]["data"]) == MAX_ROWS
    [run] = wandb_files.runs(folder)
    assert (run.project, run.display_name) == ("mine", "first")
    settings = {item.key: json.loads(item.value_json) for item in run.config.update}
    assert settings["project_name"] == "mine" and settings["lm_lr"] == asked.lm_lr


def test_nobody_asked(tmp_path: Path) -> None:
    assert asked_for(config(), tmp_path / "run") is None and list(tmp_path.iterdir()) == []
