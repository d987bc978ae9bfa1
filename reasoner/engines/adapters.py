"""The adapter folders that engines load: PEFT's layout, safetensors only, checked before anything is
loaded.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from reasoner.errors import EngineError, ModelError, UsageError
from reasoner.records import GenerationRequest

T = TypeVar("T")
CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """A LoRA adapter on disk."""

    path: Path
    rank: int


def check_adapter(name: str, path: Path, max_rank: int, *, enabled: bool) -> AdapterFolder:
    """The adapter in `path`, fit for an engine that serves ranks up to `max_rank`.

    Raises UsageError when the engine was started without adapters or the name is empty, and ModelError when
    the folder is no LoRA adapter in safetensors or its rank is too high.
    """
    if not enabled:
        raise UsageError(f"adapter {name!r}: this engine was started without adapters; set adapters=True")
    if not name:
        raise UsageError("an adapter needs a name; the empty name is the bare base")
    folder = Path(path).resolve()
    for file in (CONFIG, WEIGHTS):
        if not (folder / file).is_file():
            raise ModelError(f"adapter {name!r}: {folder} has no {file}; save it with PEFT as safetensors")
    try:
        config = json.loads((folder / CONFIG).read_text())
        kind, rank = (
            config["peft_type"],
            max([int(config["r"]), *map(int, config.get("rank_pattern", {}).values())]),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"adapter {name!r}: {folder / CONFIG} is not readable ({error!r})") from error
    if kind != "LORA":
        raise ModelError(f"adapter {name!r}: {folder} is of type {kind}; only LORA can be served")
    if rank > max_rank:
        raise ModelError(
            f"adapter {name!r} has rank {rank}; start the engine with max_lora_rank={rank} or more"
        )
    return AdapterFolder(folder, rank)


def require_loaded(request: GenerationRequest, loaded: object) -> None:
    """Raises EngineError when the request names an adapter that is not in `loaded` (a container of names)."""
    if request.adapter and request.adapter not in loaded:  # type: ignore[operator]
        names = ", ".join(sorted(loaded)) or "none"  # type: ignore[call-overload]
        raise EngineError(
            f"problem {request.problem_id}: adapter {request.adapter!r} is not loaded (loaded: {names}); "
            "call load_adapter first"
        )


def forget(loaded: dict[str, T], name: str) -> T:
    """Take `name` out of `loaded` and return what stood there. Raises EngineError when it is not loaded."""
    if name not in loaded:
        names = ", ".join(sorted(loaded)) or "none"
        raise EngineError(f"adapter {name!r} is not loaded (loaded: {names}), so it can't be unloaded")
    return loaded.pop(name)
