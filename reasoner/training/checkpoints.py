"""Checkpoints that can be trusted after a kill at any moment.

The Trainer writes a checkpoint's files one after another, so a killed run leaves a folder that looks like a
checkpoint. Here a checkpoint counts only with a marker, written last, that holds the hash of every file. Old
checkpoints are removed after the new one's marker, never before. A work folder belongs to one identity (the
hash of all inputs); another identity clears it.
"""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from reasoner.errors import TrainingError
from reasoner.ids import file_hash
from reasoner.store.durable import replace_file

MARKER = "complete.json"
IDENTITY = "identity.json"
REQUIRED = (
    "adapter_config.json",
    "adapter_model.safetensors",
    "scheduler.pt",
    "trainer_state.json",
)
OPTIMISER_STATES = ("optimizer.pt", "optimizer.bin", "latest")
"""One of them: the Trainer's own, accelerate's of a model that was divided, or DeepSpeed's, which names its folder."""
NAME = re.compile(r"checkpoint-(\d+)")


def write_json(path: Path, value: object) -> None:
    """Write JSON with sorted keys; readers see all of it or nothing, and it is on the disk afterwards."""
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    replace_file(path, [text.encode() + b"\n"])


def seal(folder: Path) -> None:
    """Mark a checkpoint as complete. Raises `TrainingError` if a file that resuming needs is missing."""
    missing = [name for name in REQUIRED if not (folder / name).is_file()]
    if not any((folder / name).is_file() for name in OPTIMISER_STATES):
        missing.append(OPTIMISER_STATES[0])
    if missing or not list(folder.glob("rng_state*.pth")):
        raise TrainingError(f"The checkpoint {folder} lacks {', '.join(missing) or 'its random state'}")
    mark(folder)


def mark(folder: Path) -> None:
    """Write the marker that says that the folder is complete, with the hash of every file in it."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != MARKER)
    write_json(folder / MARKER, {str(p.relative_to(folder)): file_hash(p) for p in files})


def is_complete(folder: Path) -> bool:
    """Whether the marker is there and every file that it names has the content that it had then."""
    try:
        files = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return bool(files) and all(file_hash(folder / name) == digest for name, digest in files.items())
    except (OSError, ValueError, AttributeError):
        return False


def step_of(folder: Path) -> int:
    """The optimiser step of a checkpoint folder."""
    match = NAME.fullmatch(folder.name)
    if match is None:
        raise TrainingError(f"{folder} is not a checkpoint folder")
    return int(match.group(1))


def all_checkpoints(work: Path) -> list[Path]:
    """Every folder that is named like a checkpoint, oldest step first, complete or not."""
    if not work.is_dir():
        return []
    return sorted((p for p in work.iterdir() if p.is_dir() and NAME.fullmatch(p.name)), key=step_of)


def state_of(checkpoint: Path) -> dict[str, object]:
    """The Trainer's state: step, log, best validation loss."""
    state: dict[str, object] = json.loads((checkpoint / "trainer_state.json").read_text(encoding="utf-8"))
    return state


def best_step(checkpoint: Path) -> int | None:
    """The step of the lowest validation loss up to a checkpoint, or None without validation."""
    step = state_of(checkpoint).get("best_global_step")
    return step if isinstance(step, int) and step > 0 else None


def last_complete(work: Path) -> Path | None:
    """The newest checkpoint to resume from: complete, and its best predecessor is complete, too."""
    complete = {step_of(p): p for p in all_checkpoints(work) if is_complete(p)}
    for step in sorted(complete, reverse=True):
        best = best_step(complete[step])
        if best is None or best in complete:
            return complete[step]
    return None


def open_work(work: Path, identity: str, log: Callable[[str], None]) -> Path | None:
    """Make the work folder ready for `identity` and return the checkpoint to resume from, if there is one.

    Checkpoints of another identity, and those that a killed run left half written, are removed.
    """
    work.mkdir(parents=True, exist_ok=True)
    record = work / IDENTITY
    try:
        known = json.loads(record.read_text(encoding="utf-8"))["identity"]
    except (OSError, ValueError, KeyError, TypeError):
        known = None
    found = all_checkpoints(work)
    if known != identity:
        if found:
            log(f"{len(found)} checkpoints in {work} belong to other inputs and are removed")
        for folder in found:
            shutil.rmtree(folder)
        write_json(record, {"identity": identity})
        return None
    last = last_complete(work)
    for folder in found:
        if not is_complete(folder) or last is None or step_of(folder) > step_of(last):
            log(f"{folder.name} is incomplete or damaged and is removed")
            shutil.rmtree(folder)
    return last


def rotate(work: Path, limit: int) -> None:
    """Keep the newest `limit` checkpoints and the best one of each; call it only after the newest is sealed.

    Each of them could become the one to go on from, and would then need its own best.
    """
    folders = all_checkpoints(work)
    newest = folders[-limit:]
    needed = {step_of(p) for p in newest} | {best_step(p) for p in newest}
    for folder in folders:
        if step_of(folder) not in needed:
            shutil.rmtree(folder)
