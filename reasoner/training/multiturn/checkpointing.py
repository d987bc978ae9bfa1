"""Checkpoints of the multi-turn loop: sealed folders of safetensors and one JSON state; see `training.checkpoints`."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.training import checkpoints
from reasoner.training.multiturn.parts import Learned

STATE = "trainer_state.json"


@dataclass
class State:
    """What a loop knows beside its weights."""

    step: int = 0
    """Finished iterations."""
    validations: list[dict[str, float]] = field(default_factory=list)
    """Numbers of each validation, with its `step`; step 0 is the untrained policy."""

    def best(self, metric: str) -> int | None:
        """The iteration of the highest validation metric after training began, the earliest of equals."""
        trained = [v for v in self.validations if v["step"] > 0]
        return int(max(trained, key=lambda v: (v[metric], -v["step"]))["step"]) if trained else None


def save(work: Path, learned: Learned, state: State, metric: str, keep: int) -> Path:
    """Write and seal the checkpoint of `state.step`, then remove old ones but the best."""
    folder = work / f"checkpoint-{state.step}"
    folder.mkdir(parents=True, exist_ok=True)
    learned.save(folder)
    row: dict[str, Any] = {
        "global_step": state.step, "best_global_step": state.best(metric), "validations": state.validations,
    }  # fmt: skip
    checkpoints.write_json(folder / STATE, row)
    checkpoints.mark(folder)
    checkpoints.rotate(work, keep)
    return folder


def load(folder: Path, learned: Learned | None = None) -> State:
    """The state of a checkpoint, and its weights into `learned`."""
    row = json.loads((folder / STATE).read_text(encoding="utf-8"))
    if learned is not None:
        learned.load(folder)
    return State(row["global_step"], row["validations"])
