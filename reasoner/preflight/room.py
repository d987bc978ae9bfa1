"""Gate: memory and disk, with the numbers of the plan but the real device and the longest record that there is."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from reasoner.config.training import TrainConfig
from reasoner.errors import ModelError, TrainingError
from reasoner.planning import fit, memory
from reasoner.planning.architecture import Architecture
from reasoner.planning.device import Device, host_memory
from reasoner.planning.memory import TrainingShape


def require_room(
    base: Mapping[str, Any], config: TrainConfig, *, longest: int, nf4: bool, device_bytes: int | None, folder: Path
) -> None:  # fmt: skip
    """Whether the training of records of at most `longest` tokens fits, and its checkpoints into `folder`'s disk.

    `device_bytes` are free on the card, None trains on the CPU. A card's micro-batch is halved by the run itself, so
    there one record must fit; on a CPU the whole one must, since the kernel kills what takes too much. Raises
    TrainingError with what would fit. `base` is the base's config.json; one of another shape is not counted.
    """
    try:
        arch = Architecture.from_config(base)
    except ModelError:
        return
    on_card = device_bytes is not None
    half = on_card and config.precision != "fp32"
    shape = TrainingShape(
        config.batch_size, min(longest, config.max_length), config.gradient_checkpointing,
        "nf4" if nf4 else "bfloat16" if half else "float32", "bfloat16" if half else "float32",
    )  # fmt: skip
    free = host_memory()[1] + memory.PROCESS  # this process has taken its own share already
    need = memory.training(arch, replace(shape, batch=1) if on_card else shape, config.lora, on_card)
    # What is free on a card is free beside the context that asked for it.
    room = device_bytes + memory.CONTEXT if device_bytes is not None else 0
    device = Device("the card" if on_card else "cpu", 0, 0, room, 0)
    remedy = fit.training_remedy(arch, shape, config.grad_accum, config.lora, device, free)
    line = fit.memory_refusal("training", need.device, need.host, device, free, remedy)
    line = line or fit.disk_refusal(
        (config.save_total_limit + 2) * 12 * arch.lora_weights(config.lora), folder
    )
    if line:
        raise TrainingError(line)
