"""Whether a plan fits: the card's memory, main memory, the disk. Where not, a line that names what would fit."""

import shutil
from pathlib import Path

import yaml

from reasoner.config.compose import CONFIG_FOLDER
from reasoner.config.training import ComputeConfig, LoraConfig, TrainConfig
from reasoner.planning import memory
from reasoner.planning.architecture import Architecture
from reasoner.planning.device import GIB, Device
from reasoner.planning.memory import TrainingShape

RESERVE = 0.02
"""Share of the disk that stays free."""


def gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"


def training_remedy(
    arch: Architecture, shape: TrainingShape, accumulate: int, lora: LoraConfig, device: Device, host: int
) -> str:
    """Settings with which a training that does not fit would; says what it looked at where none does."""
    on_card = not device.is_cpu

    def fits(cut: TrainingShape) -> bool:
        need = memory.training(arch, cut, lora, on_card)
        return need.device <= device.memory and need.host <= host

    words = memory.what_fits(shape, accumulate, fits)
    if words is None:
        tried = "with one record a micro-step and gradient checkpointing" + (", in NF4" if on_card else "")
        return f"nothing fits ({tried}): take a smaller model, a lower train.max_length or a larger machine"
    groups = [name for name in compute_groups() if fits(_of_group(name, shape, accumulate, arch))]
    return " ".join(words) + (f" (or compute={groups[0]})" if groups else "")


def compute_groups(folder: Path = CONFIG_FOLDER) -> list[str]:
    """The budgets under configs/compute, the roomiest first."""
    sizes = {p.stem: p for p in (folder / "compute").glob("gpu*.yaml")}
    return sorted(sizes, key=lambda name: -int("".join(c for c in name if c.isdigit()) or 0))


def _of_group(name: str, shape: TrainingShape, accumulate: int, arch: Architecture) -> TrainingShape:
    """The shape as the group `name` would cut it."""
    plain = yaml.safe_load((CONFIG_FOLDER / "compute" / f"{name}.yaml").read_text())
    compute = ComputeConfig.model_validate(plain.get("compute", {}))
    settings = {"gradient_checkpointing": shape.recompute, **plain.get("train", {})}
    train = compute.cut(TrainConfig(batch_size=shape.batch, grad_accum=accumulate, **settings))
    limit = train.nf4_above_gib
    nf4 = shape.weights == "nf4" or (
        limit is not None and shape.weights == "bfloat16" and 2 * arch.weights > limit * GIB
    )
    return TrainingShape(train.batch_size, shape.length, train.gradient_checkpointing,
                         "nf4" if nf4 else shape.weights, shape.compute)  # fmt: skip


def memory_refusal(
    what: str, device_bytes: int, host_bytes: int, device: Device, host: int, remedy: str
) -> str:
    """A line where a stage does not fit into the card or into main memory; empty where it fits."""
    if device_bytes > device.memory and not device.is_cpu:
        return f"{what} needs about {gib(device_bytes)} on {device.name}, which has {gib(device.memory)}: {remedy}"
    if host_bytes > host:
        return f"{what} needs about {gib(host_bytes)} of main memory, {gib(host)} are there: {remedy}"
    return ""


def disk_refusal(needed: int, folder: Path) -> str:
    """A line where the disk under `folder` has too little room; empty where it has enough."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    usage = shutil.disk_usage(there)
    free = usage.free - int(RESERVE * min(usage.total, 50 * GIB))
    if needed <= free:
        return ""
    return (f"it leaves about {gib(needed)} on the disk of {there}, where {gib(max(0, free))} are free: free some, or "
            "set REASONER_HOME (everything) or REASONER_STORE (artifacts) to a larger disk")  # fmt: skip
