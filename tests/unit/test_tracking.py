"""W&B is off by default, offline without a key, and never in the way of a run. With the real wandb, offline."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reasoner import tracking
from reasoner.config import compose
from reasoner.config.smart import SmartConfig
from reasoner.config.tracking import TrackingConfig
from reasoner.errors import ConfigurationError
from reasoner.tracking import Tracking, log_tables, mode, numbers, secrets
from tests.support import wandb_files

KEY = "0123456789abcdef0123456789abcdef01234567"
TABLE = {
    "held-out": {"epoch 1": {"label": "epoch 1", "accuracy": {"value": 0.5, "low": 0.25}, "invalid": None}}
}


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
        if name.startswith("smart-"):
            assert compose.load(name, [], SmartConfig).tracking.wandb is False
    assert Tracking.of(TrackingConfig(), "run", tmp_path) is None
    log_tables(None, TABLE, print)
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


def test_without_the_package_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match="install the extra `wandb`"):
        Tracking.of(TrackingConfig(wandb=True), "run", tmp_path)


def test_numbers_are_named_by_their_place() -> None:
    assert numbers(TABLE) == {"held-out/epoch 1/accuracy/value": 0.5, "held-out/epoch 1/accuracy/low": 0.25}
    assert numbers({"a": [{"label": "x", "n": 1}, 2], "b": True, "c": "word"}) == {"a/x/n": 1.0, "a/1": 2.0}


def test_an_evaluation_is_written_offline_and_holds_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_MODE", "offline")
    asked = Tracking.of(TrackingConfig(wandb=True, project="mine"), "smart-1", tmp_path)
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
    with tracking.tracked(Tracking("p", "g", tmp_path), lines.append) as on:
        assert on is False
    log_tables(Tracking("p", "g", tmp_path), TABLE, lines.append)
    assert lines == ["W&B (offline) does not start: no space left"] * 2
