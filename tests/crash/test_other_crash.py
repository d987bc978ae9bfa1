"""What test_store_crash and test_ledger_crash leave: a store at a URL, a torn journal, remembered hashes, checkpoints.

Each is cut at every write, flush, rename, mkdir, unlink and truncation: killed, refused once, or on a disk that is full
from then on. The same work again must end with the bytes of an undisturbed one.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reasoner.ids import content_hash
from reasoner.ledger import Ledger
from reasoner.records import ArtifactRef, Completion, GenerationRequest, Sampling
from reasoner.store import Store
from reasoner.store.hashes import HashCache
from reasoner.store.manifest import MANIFEST
from reasoner.store.rows import write_rows
from reasoner.training import checkpoints
from tests.crash.faults import run_cut

pytestmark = pytest.mark.crash

MODES = ("kill", "fail", "full")
LAST_STEP = 4


def tree(folder: Path) -> dict[str, str]:
    """The content of every file below a folder, but manifests' times and lock files' owners."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".lock":
            data = path.read_bytes()
            if path.name == MANIFEST:
                row = json.loads(data)
                files = [[entry["path"], entry["sha256"]] for entry in row["files"]]
                data = content_hash([row["digest"], row["metadata"], files]).encode()
            found[str(path.relative_to(folder))] = data.hex()
    return found


def cut_everywhere(
    tmp_path: Path,
    work: Callable[[Path], object],
    mode: str,
    make: Callable[[Path], object] | None = None,
    result: Callable[[Path], object] = tree,
) -> int:
    """Cut `work(room)` at every call, do it again: the result must be an undisturbed one's. Returns how many cuts."""
    rooms = [tmp_path / "calm", *(tmp_path / str(at) for at in range(1, 300))]
    for at, room in enumerate(rooms):
        room.mkdir()
        if make is not None:
            make(room)
        outcome = run_cut(lambda room=room: work(room) and None, at, mode) if at else 0  # type: ignore[misc]
        work(room)
        assert result(room) == result(rooms[0]), (mode, at)
        if at and outcome == 0:
            return at - 1
        if at:
            shutil.rmtree(room)
    raise AssertionError("the work never ended")


@pytest.mark.parametrize("mode", MODES)
def test_a_store_at_a_url(tmp_path: Path, mode: str) -> None:
    """Publish, then read it on a machine without a copy."""

    def work(room: Path) -> ArtifactRef:
        url = f"local://{room}/bucket"
        store = Store(url, cache=room / "cache")
        with store.writer("rows", {"n": 3}) as draft:
            write_rows(draft.path / "rows.jsonl", [{"i": i} for i in range(3)])
            (draft.path / "deep").mkdir(exist_ok=True)
            write_rows(draft.path / "deep" / "more.jsonl", [{"i": 0}])
        Store(url, cache=room / "other").open(draft.ref, full=True)
        return draft.ref

    assert cut_everywhere(tmp_path, work, mode) > (25 if mode != "full" else 8)


@pytest.mark.parametrize("mode", MODES)
def test_a_journal_with_a_torn_tail(tmp_path: Path, mode: str) -> None:
    requests = [GenerationRequest(f"p{i}", f"prompt {i}", Sampling(), index=i) for i in range(4)]

    def add(folder: Path, chosen: list[GenerationRequest]) -> bool:
        with Ledger(folder / "ledger") as ledger:
            for request in chosen:
                ledger.append([(request.key("f"), request, Completion(request.prompt, "stop", 1, 1))])
            return ledger.damaged == 0

    def torn(room: Path) -> None:
        add(room, requests[:2])
        with (room / "ledger" / "0000.jsonl").open("ab") as journal:
            journal.write(b'{"crc":"1f2e3d4c","len":"0000')

    assert cut_everywhere(tmp_path, lambda room: add(room, requests), mode, torn) >= 3


@pytest.mark.parametrize("mode", MODES)
def test_remembered_hashes(tmp_path: Path, mode: str) -> None:
    """They are a hint: whatever happens to the note, the hash is right."""
    weights = tmp_path / "weights"
    weights.write_bytes(b"w" * 1000)
    os.utime(weights, (1, 1))
    right = HashCache(tmp_path / "note").sha256(weights, weights.stat())

    def work(room: Path) -> bool:
        assert HashCache(room / "cache" / "hashes.json").sha256(weights, weights.stat()) == right
        return True

    assert cut_everywhere(tmp_path, work, mode) >= (3 if mode != "full" else 2)


@pytest.mark.parametrize("mode", MODES)
def test_checkpoints_of_a_training(tmp_path: Path, mode: str) -> None:
    """A training whose state is a number: saved at every step, sealed, old ones removed, gone on from the last."""

    def train(room: Path) -> bool:
        work = room / "work"
        last = checkpoints.open_work(work, "inputs", lambda line: None)
        state = int((last / "optimizer.pt").read_text()) if last else 0
        for step in range(checkpoints.step_of(last) + 1 if last else 1, LAST_STEP + 1):
            state = 3 * state + step
            folder = work / f"checkpoint-{step}"
            folder.mkdir()
            for name in (*checkpoints.REQUIRED, checkpoints.OPTIMISER_STATES[0], "rng_state.pth"):
                text = (
                    json.dumps({"best_global_step": max(1, step - 1)})
                    if name.endswith(".json")
                    else str(state)
                )
                (folder / name).write_text(text)
            checkpoints.seal(folder)
            checkpoints.rotate(work, 1)
        return True

    def result(room: Path) -> list[dict[str, str]]:
        """What is exported: the last checkpoint and the best one. A kill in the last removal leaves another."""
        last = checkpoints.last_complete(room / "work")
        assert last is not None and checkpoints.step_of(last) == LAST_STEP
        return [tree(last), tree(last.with_name(f"checkpoint-{checkpoints.best_step(last)}"))]

    assert cut_everywhere(tmp_path, train, mode, result=result) > (20 if mode != "full" else 8)
