"""A checkpoint counts only when it is whole, and old ones go only when the new one is."""

import json
from pathlib import Path

import pytest

from reasoner.errors import TrainingError
from reasoner.training import checkpoints

NEEDED = [*checkpoints.REQUIRED, checkpoints.OPTIMISER_STATES[0], "rng_state.pth"]
FILES = [*NEEDED, "tokenizer.json"]


def make(work: Path, step: int, best: int | None = None, sealed: bool = True) -> Path:
    folder = work / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text(f"{name} {step}")
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "best_global_step": best}))
    if sealed:
        checkpoints.seal(folder)
    return folder


@pytest.mark.parametrize("name", NEEDED)
def test_a_checkpoint_without_a_needed_file_is_not_sealed(tmp_path: Path, name: str) -> None:
    folder = make(tmp_path, 3, sealed=False)
    (folder / name).unlink()
    with pytest.raises(TrainingError, match="lacks"):
        checkpoints.seal(folder)
    assert not checkpoints.is_complete(folder)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["missing", "altered", "cut"])
def test_a_damaged_checkpoint_is_not_complete(tmp_path: Path, name: str, damage: str) -> None:
    folder = make(tmp_path, 3)
    assert checkpoints.is_complete(folder)
    path = folder / name
    if damage == "missing":
        path.unlink()
    elif damage == "altered":
        path.write_bytes(b"X" + path.read_bytes()[1:])
    else:
        path.write_bytes(path.read_bytes()[:-1])
    assert not checkpoints.is_complete(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "3"])
def test_a_broken_marker_is_not_complete(tmp_path: Path, text: str) -> None:
    folder = make(tmp_path, 3)
    (folder / checkpoints.MARKER).write_text(text)
    assert not checkpoints.is_complete(folder)


def test_the_last_is_the_newest_complete_one_by_number(tmp_path: Path) -> None:
    assert checkpoints.last_complete(tmp_path) is None
    for step in (9, 10, 2):
        make(tmp_path, step)
    make(tmp_path, 11, sealed=False)
    assert checkpoints.last_complete(tmp_path) == tmp_path / "checkpoint-10"


def test_a_checkpoint_whose_best_is_lost_is_passed_over(tmp_path: Path) -> None:
    make(tmp_path, 2, best=2)
    best = make(tmp_path, 4, best=4)
    make(tmp_path, 6, best=4)
    (best / "optimizer.pt").unlink()
    assert checkpoints.last_complete(tmp_path) == tmp_path / "checkpoint-2"


def test_opening_removes_what_a_kill_left(tmp_path: Path) -> None:
    lines: list[str] = []
    assert checkpoints.open_work(tmp_path, "a", lines.append) is None
    good, half = make(tmp_path, 4), make(tmp_path, 6, sealed=False)
    other = tmp_path / "checkpoint-notes"
    other.mkdir()
    assert checkpoints.open_work(tmp_path, "a", lines.append) == good
    assert not half.exists() and other.exists()
    assert len(lines) == 1 and "checkpoint-6" in lines[0]


@pytest.mark.parametrize("record", [None, "{", '{"identity": "b"}', "[]"])
def test_another_identity_clears_the_checkpoints(tmp_path: Path, record: str | None) -> None:
    make(tmp_path, 4)
    if record is not None:
        (tmp_path / checkpoints.IDENTITY).write_text(record)
    lines: list[str] = []
    assert checkpoints.open_work(tmp_path, "a", lines.append) is None
    assert checkpoints.all_checkpoints(tmp_path) == []
    assert "other inputs" in lines[0]
    kept = make(tmp_path, 2)
    assert checkpoints.open_work(tmp_path, "a", lines.append) == kept


@pytest.mark.parametrize(
    ("limit", "bests", "left"),
    [
        (1, {}, [8]),
        (2, {6: 2, 8: 2}, [2, 6, 8]),
        (2, {6: 2, 8: 8}, [2, 6, 8]),
        (1, {6: 2, 8: 8}, [8]),
        (9, {8: 2}, [2, 4, 6, 8]),
    ],
)
def test_rotation_keeps_the_newest_and_what_they_need(
    tmp_path: Path, limit: int, bests: dict[int, int], left: list[int]
) -> None:
    for step in (2, 4, 6, 8):
        make(tmp_path, step, best=bests.get(step))
    checkpoints.rotate(tmp_path, limit)
    assert [checkpoints.step_of(p) for p in checkpoints.all_checkpoints(tmp_path)] == left


def test_not_a_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="not a checkpoint"):
        checkpoints.step_of(tmp_path)
