"""W&B is off by default, offline without a key, and never in the way of a run. With the real wandb, offline."""

import importlib.util
import json
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from reasoner.config import compose
from reasoner.config.kinds import section_of
from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.planner import PlannerConfig
from reasoner.config.smart import SmartConfig
from reasoner.errors import ConfigurationError
from reasoner.tracking import Histogram, Run, Table, Tracking, mode, secrets, tracked
from reasoner.tracking.evaluations import log_tables, numbers
from tests.support import wandb_files

KEY = "0123456789abcdef0123456789abcdef01234567"
TABLE = {
    "held-out": {"epoch 1": {"label": "epoch 1", "accuracy": {"value": 0.5, "low": 0.25}, "invalid": None}}
}
SWITCHES = {SmartConfig: "tracking.wandb", PlannerConfig: "wandb.enabled", MultiTurnConfig: "use_wandb"}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    import os

    before = dict(os.environ)
    for name in list(os.environ):
        if name.startswith("WANDB_"):
            monkeypatch.delenv(name)
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]


def test_it_is_off_unless_asked_for(tmp_path: Path) -> None:
    for name in compose.names():
        section = section_of(name)
        if section in SWITCHES:
            assert attrgetter(SWITCHES[section])(compose.load(name, [], section)) is False, name
    assert Tracking.of(False, "mine", "run", tmp_path) is None
    log_tables(None, TABLE, print)
    with tracked(None, print) as run:
        run.log({"loss": 1.0, "rows": Table(("a",), [(1,)])}, step=3)
    assert run.on is False and Run().on is False
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "wanted", "found"),
    [
        ("", "", "offline"), (KEY, "", "online"), ("", "online", "offline"), (KEY, "offline", "offline"),
        (KEY, "disabled", "disabled"), ("", "disabled", "disabled"),
    ],
)  # fmt: skip
def test_only_a_key_in_the_environment_makes_it_online(
    key: str, wanted: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.setenv("WANDB_MODE", wanted)
    assert mode() == found
    assert secrets().get("WANDB_API_KEY", "") == key


def test_a_login_of_wandbs_own_is_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = tmp_path / ".netrc"
    kept.write_text(f"machine api.wandb.ai login user password {KEY}\n")
    kept.chmod(0o600)
    assert mode() == "offline" and secrets() == {}


def test_without_the_package_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="install the extra `wandb`"):
        Tracking.of(True, "mine", "run", tmp_path)


def test_numbers_are_named_by_their_place() -> None:
    assert numbers(TABLE) == {"held-out/epoch 1/accuracy/value": 0.5, "held-out/epoch 1/accuracy/low": 0.25}
    assert numbers({"a": [{"label": "x", "n": 1}, 2], "b": True, "c": "word"}) == {"a/x/n": 1.0, "a/1": 2.0}


def test_an_evaluation_is_written_offline_and_holds_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_MODE", "offline")
    asked = Tracking.of(True, "mine", "smart-1", tmp_path)
    assert asked is not None
    lines: list[str] = []
    log_tables(asked.run("evaluation", "evaluation"), TABLE, lines.append)
    assert "mine/smart-1, evaluation, offline" in lines[0] and len(lines) == 1
    summary = wandb_files.summary(tmp_path)
    assert summary["held-out/epoch 1/accuracy/value"] == 0.5
    [run] = wandb_files.runs(tmp_path)
    assert (run.project, run.run_group, run.display_name, run.job_type) == (
        "mine", "smart-1", "evaluation", "evaluation",
    )  # fmt: skip
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path


def test_numbers_tables_and_histograms_of_a_step_stand_together(tmp_path: Path) -> None:
    table = Table(("problem", "parts", "right"), [("a", ["x", "y"], True), ("b", None, False)])
    lines: list[str] = []
    with tracked(Tracking("p", "", tmp_path, run_id="abc"), lines.append, {"lr": 0.5}) as run:
        run.log({"loss": 2.0, "rewards": Histogram([0.0, 1.0, 1.0]), "examples": table}, step=4)
        run.log({"loss": 1.0}, step=5)
    first, second = wandb_files.history(tmp_path)
    assert (first["loss"], first["_step"], second["loss"], second["_step"]) == (2.0, 4, 1.0, 5)
    assert first["rewards/_type"] == "histogram" and sum(first["rewards/values"]) == 3
    [written] = [json.loads(path.read_text()) for path in tmp_path.rglob("*.table.json")]
    assert written == {
        "columns": ["problem", "parts", "right"],
        "data": [["a", '["x", "y"]', True], ["b", None, False]],
    }
    [began] = wandb_files.runs(tmp_path)
    assert began.run_id == "abc" and not began.run_group and wandb_files.exit_codes(tmp_path) == [0]
    assert "p, offline, no WANDB_API_KEY" in lines[0] and "`wandb sync`" in lines[0] and len(lines) == 1


def test_what_wandb_does_not_take_is_said_and_ends_nothing(tmp_path: Path) -> None:
    lines: list[str] = []
    with tracked(Tracking("p", "g", tmp_path), lines.append) as run:
        run.log({"examples": Table(("a", "b"), [(1,)])})
        run.log({"loss": 1.0})
    assert lines[1].startswith("W&B took not everything: ") and len(lines) == 2
    assert [row["loss"] for row in wandb_files.history(tmp_path)] == [1.0]


def test_a_block_that_fails_marks_its_run_as_failed(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="broken"),
        tracked(Tracking("p", "g", tmp_path), lambda line: None) as run,
    ):
        run.log({"loss": 1.0})
        raise ValueError("broken")
    assert wandb_files.exit_codes(tmp_path) == [1]


def test_a_server_that_refuses_leaves_the_run_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    plain = wandb.init

    def init(**options: Any) -> Any:
        if options["mode"] == "online":
            raise wandb.errors.AuthenticationError("The key is not valid\nsecond line")
        return plain(**options)

    monkeypatch.setattr(wandb, "init", init)
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    lines: list[str] = []
    log_tables(Tracking("p", "g", tmp_path, "evaluation"), TABLE, lines.append)
    assert lines[0] == "W&B (online) does not start: The key is not valid"
    assert "offline" in lines[1]
    assert wandb_files.summary(tmp_path)["held-out/epoch 1/accuracy/low"] == 0.25


def test_a_broken_package_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    def init(**options: Any) -> Any:
        raise OSError("no space left")

    monkeypatch.setattr(wandb, "init", init)
    lines: list[str] = []
    with tracked(Tracking("p", "g", tmp_path), lines.append) as run:
        assert run.on is False
        run.log({"loss": 1.0})
    log_tables(Tracking("p", "g", tmp_path), TABLE, lines.append)
    assert lines == ["W&B (offline) does not start: no space left"] * 2
