"""Writes the current adapter where an engine can read it: bfloat16 safetensors, in memory where the system has room.

An adapter of rank 16 has 10 to 40 MB in bfloat16. `/dev/shm` is main memory with names, so the engine's process
reads it without a disk. Where it is missing, full or not ours, the temporary folder takes its place. What a killed
trainer left is removed by the next one that runs on the machine.
"""

import errno
import math
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reasoner.engines.adapters import WEIGHTS
from reasoner.errors import InfrastructureError, ModelError, UsageError
from reasoner.process.owner import owner_is_dead, owner_tag

MEMORY = Path("/dev/shm")
PREFIX = "reasoner-adapters+"
MARGIN = 3
"""Free space that must be there, in adapters: the new one, the old one, and one in reserve."""
SECOND = re.compile(r"\.lora_(embedding_)?B\b")
"""The names of the second of an adapter's two matrices."""
FULL = (errno.ENOSPC, errno.EDQUOT)


class AdapterFolder:
    """Versions of adapters in a private folder (mode 0700) that goes with this object. A context manager.

    No version is overwritten. The caller removes a version when the engine has read the next one.
    """

    def __init__(self, parent: Path | None = None, *, log: Callable[[str], None] = print) -> None:
        """`parent` is the only candidate when given; otherwise memory first, then the temporary folder."""
        self._candidates = [Path(parent)] if parent else [MEMORY, Path(tempfile.gettempdir())]
        self._log = log
        self._folders: list[Path] = []
        self._versions: dict[str, int] = {}
        for candidate in self._candidates:
            remove_left(candidate)

    @property
    def path(self) -> Path | None:
        """Where the latest adapter lies; None before the first."""
        return self._folders[-1] if self._folders else None

    def write(self, name: str, model: Any, peft_name: str = "default", *, dtype: str = "bfloat16") -> Path:
        """Save the adapter `peft_name` of the PEFT model `model` as the next version of `name`; returns its folder.

        Raises UsageError if the model has no such adapter, ModelError for one that an engine can't serve, and
        InfrastructureError without space.
        """
        config = served_config(model, peft_name)
        weights = adapter_tensors(model, peft_name, dtype, factor=fold_scaling(config))
        size = sum(tensor.numel() * tensor.element_size() for tensor in weights.values())
        version = self._versions.get(name, 0) + 1
        trouble = "no folder for adapters"
        for home in self._homes(size):
            target = home / f"{name}-{version:06d}"
            try:
                target.mkdir(mode=0o700)
                self._write(target, weights, config)
            except OSError as error:
                shutil.rmtree(target, ignore_errors=True)
                if error.errno not in FULL:
                    raise InfrastructureError(f"an adapter can't be written to {target}: {error}") from error
                trouble = f"{home} is full"
                self._log(f"{trouble}: the adapter goes to the next folder")
            else:
                self._versions[name] = version
                return target
        raise InfrastructureError(f"{trouble}: an adapter takes {size / 2**20:.0f} MiB; free some space")

    def remove(self, folder: Path) -> None:
        """Remove a version; a folder that is gone, or is not one of ours, stays as it is."""
        if folder.parent in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove everything."""
        while self._folders:
            shutil.rmtree(self._folders.pop(), ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _homes(self, size: int) -> Iterator[Path]:
        """Our folder on each file system that has room, the preferred one first."""
        for candidate in self._candidates:
            if not os.access(candidate, os.W_OK) or shutil.disk_usage(candidate).free < MARGIN * size:
                continue
            known = [folder for folder in self._folders if folder.parent == candidate and folder.is_dir()]
            if not known:
                tag = f"{PREFIX}{owner_tag()}+"
                self._folders.append(Path(tempfile.mkdtemp(prefix=tag, dir=candidate)))
                known = self._folders[-1:]
            yield known[0]

    @staticmethod
    def _write(target: Path, weights: dict[str, Any], config: Any) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        try:
            save_file(weights, target / WEIGHTS, metadata={"format": "pt"})
        except SafetensorError as error:  # it hides the number of the system's error
            full = "No space left" in str(error) or "os error 28" in str(error)
            raise OSError(errno.ENOSPC if full else errno.EIO, str(error)) from error
        config.save_pretrained(str(target))


def adapter_tensors(model: Any, policy: str, dtype: str, *, factor: float = 1.0) -> dict[str, Any]:
    """The weights of one adapter on the CPU, named as PEFT saves them; those of B times `factor`. `dtype` `keep` leaves
    their precision."""
    import torch

    require_adapter(model, policy)
    weights = adapter_parameters(model, policy)
    if factor != 1:
        weights = {n: w.detach() * factor if SECOND.search(n) else w for n, w in weights.items()}
    if dtype == "keep" or not weights:
        return {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    # One piece in the target precision: the bus is crossed once, not once a tensor, and by half the bytes.
    whole = torch.cat([weight.detach().reshape(-1) for weight in weights.values()])
    parts = whole.to(getattr(torch, dtype)).cpu().split([weight.numel() for weight in weights.values()])
    return {
        name: part.view(weight.shape) for (name, weight), part in zip(weights.items(), parts, strict=True)
    }


def adapter_parameters(model: Any, policy: str) -> dict[str, Any]:
    """The LoRA parameters of one adapter under the names that PEFT gives them in a file.

    `get_peft_model_state_dict` says the same, but walks the whole model several times, once for all of its weights.
    """
    wanted = re.compile(rf"(.+\.lora_\w+)\.{re.escape(policy)}(\.\w+)?")
    found = ((wanted.fullmatch(name), weight) for name, weight in model.named_parameters() if "lora_" in name)
    return {match[1] + (match[2] or ""): weight for match, weight in found if match}


def served_config(model: Any, policy: str) -> Any:
    """The adapter's configuration, refused when an engine could not serve it. Raises ModelError."""
    import copy

    require_adapter(model, policy)
    config = copy.deepcopy(model.peft_config[policy])
    trouble = {
        "modules_to_save": bool(getattr(config, "modules_to_save", None)),
        "use_dora": bool(getattr(config, "use_dora", False)),
        "bias": getattr(config, "bias", "none") != "none",
        "trainable_token_indices": bool(getattr(config, "trainable_token_indices", None)),
    }
    for name, bad in trouble.items():
        if bad:
            raise ModelError(f"adapter {policy!r} uses {name}, which an engine can't serve; train without it")
    config.inference_mode = True
    return config


def fold_scaling(config: Any) -> float:
    """What B is multiplied by to say the same with a scaling of 1, which `config` has from now on.

    vLLM multiplies each tensor by the scaling when it loads an adapter, on the processor; on the card, all at once, it
    costs nothing. 1, and no change, for an adapter whose modules differ in rank or alpha.
    """
    if config.rank_pattern or config.alpha_pattern:
        return 1.0
    scaling = config.lora_alpha / (math.sqrt(config.r) if config.use_rslora else config.r)
    config.lora_alpha, config.use_rslora = config.r, False
    return float(scaling)


def require_adapter(model: Any, policy: str) -> None:
    """Raises ModelError unless `model` is a PEFT model, UsageError unless it has that adapter."""
    known = getattr(model, "peft_config", None)
    if not isinstance(known, dict):
        raise ModelError(f"policy {policy!r}: the model has no adapters; wrap it with peft.get_peft_model")
    if policy not in known:
        raise UsageError(f"the model has no adapter {policy!r}; it has {', '.join(sorted(known))}")


def remove_left(candidate: Path) -> None:
    """Remove the adapters of trainers that have certainly ended."""
    if not candidate.is_dir():
        return
    for folder in candidate.glob(f"{PREFIX}*"):
        try:
            dead = folder.stat().st_uid == os.getuid() and owner_is_dead(folder.name.split("+")[1])
        except (OSError, ValueError, IndexError):
            continue
        if dead:
            shutil.rmtree(folder, ignore_errors=True)
