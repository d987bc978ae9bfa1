"""Checkpoints of our own loop: adapters, optimiser, scheduler, random states, data position.

Tensors are safetensors, the rest JSON; nothing is pickled. A checkpoint is written under a temporary name with the hash
of every file in `complete.json`, then renamed, so one that is named like a checkpoint and checks is whole.
"""

import json
import random
import shutil
from pathlib import Path
from typing import Any

from reasoner.errors import TrainingError
from reasoner.ids import file_hash
from reasoner.onpolicy.learner import Learner
from reasoner.training.checkpoints import MARKER, all_checkpoints, is_complete, step_of, write_json

TENSORS, STATE = "state.safetensors", "state.json"
FORMAT = 1


def save_checkpoint(
    work: Path, learner: Learner, *, step: int, identity: str, data: Any = None, keep: int = 2
) -> Path:
    """Write `work/checkpoint-<step>` and remove older ones, all but the newest `keep`.

    `step` is the next step to do; `data` is plain JSON data of the data source.
    """
    target, draft = work / f"checkpoint-{step}", work / f"draft-{step}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    tensors, plain = _learner_state(learner)
    from safetensors.torch import save_file

    save_file(tensors, draft / TENSORS)
    state = {"format": FORMAT, "identity": identity, "step": step, "data": data, **plain}
    write_json(draft / STATE, state)
    files = sorted(path for path in draft.iterdir())
    write_json(draft / MARKER, {path.name: file_hash(path) for path in files})
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)
    for old in all_checkpoints(work)[: -max(keep, 1)]:
        shutil.rmtree(old)
    return target


def load_checkpoint(work: Path, learner: Learner, *, identity: str) -> dict[str, Any] | None:
    """Restore the newest whole checkpoint into `learner`; returns `step` and `data`, or None without one.

    Raises TrainingError for a checkpoint of another run: it is never overwritten in silence.
    """
    for folder in reversed(all_checkpoints(work)):
        if not is_complete(folder):
            continue
        state = json.loads((folder / STATE).read_text(encoding="utf-8"))
        if state.get("identity") != identity or state.get("format") != FORMAT:
            raise TrainingError(f"{folder} belongs to another run; give an empty folder or remove it")
        if state["step"] != step_of(folder):
            raise TrainingError(f"{folder} holds step {state['step']}; remove it")
        from safetensors.torch import load_file

        _restore(learner, load_file(folder / TENSORS), state, folder)
        return {"step": state["step"], "data": state["data"]}
    return None


def _learner_state(learner: Learner) -> tuple[dict[str, Any], dict[str, Any]]:
    import numpy
    import torch

    tensors: dict[str, Any] = {
        f"weight/{name}": p.detach().cpu().contiguous() for name, p in learner.trained.items()
    }
    optimiser = learner.optimiser.state_dict()
    for index, slots in optimiser["state"].items():
        for slot, value in slots.items():
            tensors[f"optimiser/{index}/{slot}"] = torch.as_tensor(value).detach().cpu().contiguous()
    tensors["random/torch"] = torch.get_rng_state()
    if learner.device.type == "cuda":
        tensors["random/cuda"] = torch.cuda.get_rng_state(learner.device)
    kind, keys, *rest = numpy.random.get_state()
    tensors["random/numpy"] = torch.from_numpy(numpy.asarray(keys).astype(numpy.int64))
    version, internal, gauss = random.getstate()
    plain = {
        "groups": optimiser["param_groups"],
        "scheduler": learner.scheduler.state_dict(),
        "steps": learner.steps,
        "piece_tokens": learner.pieces.tokens,
        "random": {"python": [version, list(internal), gauss], "numpy": [str(kind), *rest]},
    }
    return tensors, plain


def _restore(learner: Learner, tensors: dict[str, Any], state: dict[str, Any], folder: Path) -> None:
    import numpy
    import torch

    names = {name.removeprefix("weight/") for name in tensors if name.startswith("weight/")}
    if names != set(learner.trained):
        raise TrainingError(f"{folder} holds other parameters than the model trains; use the same adapters")
    with torch.no_grad():
        for name, parameter in learner.trained.items():
            parameter.copy_(tensors[f"weight/{name}"])
    slots: dict[int, dict[str, Any]] = {}
    for name, value in tensors.items():
        if name.startswith("optimiser/"):
            _, index, slot = name.split("/")
            slots.setdefault(int(index), {})[slot] = value
    learner.optimiser.load_state_dict({"state": slots, "param_groups": state["groups"]})
    learner.scheduler.load_state_dict(state["scheduler"])
    learner.steps, learner.pieces.tokens = state["steps"], state["piece_tokens"]
    torch.set_rng_state(tensors["random/torch"])
    if "random/cuda" in tensors and learner.device.type == "cuda":
        torch.cuda.set_rng_state(tensors["random/cuda"], learner.device)
    version, internal, gauss = state["random"]["python"]
    random.setstate((version, tuple(internal), gauss))
    kind, *rest = state["random"]["numpy"]
    numpy.random.set_state((kind, tensors["random/numpy"].numpy().astype(numpy.uint32), *rest))
