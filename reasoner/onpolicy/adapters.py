"""Writes the current adapter where an engine can read it: bfloat16 safetensors, in memory where the system has room."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from reasoner.engines.adapters import CONFIG, WEIGHTS
from reasoner.errors import UsageError

MEMORY = Path("/dev/shm")
ROOM = 2 * 2**30
"""Free bytes below which the memory-backed folder is left alone."""


class AdapterFolder:
    """Versions of adapters, in a folder that goes with this object. A context manager.

    An adapter of rank 16 takes 10 to 40 MB. Only the newest version of a name is kept: the engine has read the one
    before when the next is written.
    """

    def __init__(self, parent: Path | None = None) -> None:
        """`parent` unset: memory-backed storage where there is room, else the system's temporary folder."""
        self.path = Path(tempfile.mkdtemp(prefix="reasoner-adapters-", dir=parent or memory_backed()))
        self._versions: dict[str, int] = {}

    def write(self, name: str, model: Any, peft_name: str = "default") -> Path:
        """Save the adapter `peft_name` of the PEFT model `model` as the next version of `name`; returns its folder.

        Raises UsageError if the model has no such adapter.
        """
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        if peft_name not in getattr(model, "peft_config", {}):
            raise UsageError(f"the model has no adapter {peft_name!r}; it has {sorted(model.peft_config)}")
        import torch

        version = self._versions.get(name, 0) + 1
        folder = self.path / f"{name}-{version:06d}"
        folder.mkdir()
        state = get_peft_model_state_dict(model, adapter_name=peft_name, save_embedding_layers=False)
        tensors = {key: value.detach().to("cpu", torch.bfloat16).contiguous() for key, value in state.items()}
        save_file(tensors, folder / WEIGHTS)
        config = model.peft_config[peft_name]
        config.save_pretrained(folder)
        assert (folder / CONFIG).is_file()
        shutil.rmtree(self.path / f"{name}-{version - 1:06d}", ignore_errors=True)
        self._versions[name] = version
        return folder

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> "AdapterFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def memory_backed() -> Path | None:
    """The memory-backed folder if it can be written and has room, else None."""
    try:
        free = shutil.disk_usage(MEMORY).free
    except OSError:
        return None
    return MEMORY if free > ROOM and os.access(MEMORY, os.W_OK) else None
