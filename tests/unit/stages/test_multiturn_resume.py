"""An evaluation that was cut off makes only what is owed and ends with the bytes of one that was not.

Wrong if an answer that was kept is asked for again, if an episode differs, or if an engine starts where
nothing is owed.
"""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from reasoner.engines import pool
from reasoner.errors import EngineError
from reasoner.stages import multiturn as work
from reasoner.stages.multiturn_room import Cast, trained_fingerprint
from reasoner.store.rows import read_rows
from reasoner.workbench import ModelFolder
from tests.support.problems import section
from tests.support.tiny_llama import make_tokenizer
from tests.unit.stages.interrupted import REFUSED, evaluate

ROOT = Path(__file__).resolve().parents[3]
TESTS, ASKED = 4, 12
"""Problems, and completions of all three turns."""


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A room with an evaluation that nothing disturbed."""
    room = tmp_path_factory.mktemp("calm")
    make_room(room)
    assert evaluate(room)["generated"]["owed"] == ASKED
    return room


@pytest.fixture
def room(tmp_path: Path) -> Path:
    make_room(tmp_path)
    return tmp_path


def make_room(room: Path) -> None:
    make_tokenizer().save_pretrained(room / "model")
    (room / "problems").mkdir()
    for part in ("solver", "guidance"):
        (room / "trained" / part).mkdir(parents=True)
    work.prepare(room / "problems", section("math"), "math", 1, 10.0)


def calls(room: Path) -> list[str]:
    path = room / "calls.txt"
    return path.read_text().splitlines() if path.is_file() else []


def kept(room: Path) -> int:
    """Whole completions in the ledger."""
    return sum(path.read_bytes().count(b'"completion"') for path in room.glob("home/ledger/*/*.jsonl"))


def same_result(room: Path, calm: Path) -> bool:
    return all(
        (room / "out" / name).read_bytes() == (calm / "out" / name).read_bytes()
        for name in (work.EPISODES, work.EVALUATION)
    )


def test_killed_in_the_second_turn_it_goes_on_from_there(room: Path, calm: Path) -> None:
    command = [sys.executable, "-m", "tests.unit.stages.interrupted", str(room), "0.3"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
    deadline = time.monotonic() + 120
    while len(calls(room)) < TESTS + 2:
        assert process.poll() is None and time.monotonic() < deadline, "it ended before it could be killed"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert TESTS <= kept(room) < ASKED and not (room / "out" / work.EPISODES).exists()
    found, before = kept(room), calls(room)

    done = evaluate(room)
    assert done["generated"]["asked"] == ASKED and done["generated"]["owed"] == ASKED - found
    again = calls(room)[len(before) :]
    assert len(again) == ASKED - found and not set(again) & set(before[:found])
    assert same_result(room, calm)


def test_an_engine_that_fails_leaves_what_it_has_made(
    room: Path, calm: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in (2, TESTS + 1, ASKED - 1):
        monkeypatch.setenv(REFUSED, str(at))
        with pytest.raises(EngineError, match="the card is gone"):
            evaluate(room)
        assert kept(room) == at
    monkeypatch.delenv(REFUSED)
    assert evaluate(room)["generated"]["owed"] == 1
    assert set(Counter(calls(room)).values()) == {1}, "nothing was asked twice"
    assert same_result(room, calm)


def test_with_nothing_owed_no_engine_starts(calm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "open_engine", lambda *_, **__: pytest.fail("an engine was started"))
    made, rows = calls(calm), read_rows(calm / "out" / work.EPISODES)
    again = evaluate(calm)["generated"]
    assert again["owed"] == 0 and again["asked"] == ASKED and again["tokens"] > 0
    assert calls(calm) == made and read_rows(calm / "out" / work.EPISODES) == rows


def test_another_training_is_another_model_and_equal_weights_are_one(tmp_path: Path) -> None:
    def adapter(name: str, weights: bytes, training: str) -> Path:
        folder = tmp_path / name / "solver"
        folder.mkdir(parents=True)
        (folder / "adapter_model.safetensors").write_bytes(weights)
        (folder / "adapter_config.json").write_text("{}")
        (folder / "training.json").write_text(training)
        return folder

    one, same, other = adapter("a", b"1", "x"), adapter("b", b"1", "y"), adapter("c", b"2", "x")
    assert (
        trained_fingerprint("base", one)
        == trained_fingerprint("base", same)
        != trained_fingerprint("base", other)
    )
    assert trained_fingerprint("base", one) != trained_fingerprint("another base", one)
    cast = Cast(ModelFolder(tmp_path, "f", "m"), None, tmp_path / "a")
    assert set(cast.adapters(False)) == {"solver"} and Cast(cast.model).adapters(False) == {}
