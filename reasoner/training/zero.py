"""DeepSpeed as the division of a training among processes: ZeRO stage 2, through the Trainer's own integration.

Divided are the gradients and the optimiser's state; every process holds the whole model. Adam is PyTorch's, not one of
those that DeepSpeed compiles. Importing this loads neither torch nor DeepSpeed, which is no dependency of this project.
Not covered: stage 3, offloading, and DeepSpeed's launcher.
"""

import importlib.util
import os
from typing import Any

from reasoner.config.training import ComputeConfig
from reasoner.errors import UsageError
from reasoner.training.specs import SftSpec

PACKAGE = "deepspeed"


def divides(asked: SftSpec | ComputeConfig) -> bool:
    """Whether DeepSpeed is asked for; one process alone needs none."""
    return asked.processes > 1 and asked.sharding == PACKAGE


def require(asked: SftSpec | ComputeConfig) -> None:
    """Raises `UsageError` where DeepSpeed is asked for and is not installed."""
    if divides(asked) and importlib.util.find_spec(PACKAGE) is None:
        raise UsageError(
            "compute.sharding=deepspeed needs a package that is not installed here: pip install deepspeed; "
            "or set compute.sharding=fsdp"
        )


def prepare(device: str) -> None:
    """Tell DeepSpeed the device, `cpu` or `cuda`, before it is imported: it would take a card wherever it sees one."""
    os.environ["DS_ACCELERATOR"] = device


def arguments(precision: str) -> dict[str, Any]:
    """Arguments of the Trainer. `auto` is what the Trainer says elsewhere.

    DeepSpeed's own bfloat16 would round the adapter, its gradients and what is exported; under its autocast they stay
    float32, and so does what the processes send each other.
    """
    settings: dict[str, Any] = {
        "zero_optimization": {"stage": 2},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "train_batch_size": "auto",
        "gradient_clipping": "auto",
    }
    if precision == "bf16":
        settings["torch_autocast"] = {
            "enabled": True,
            "dtype": "bfloat16",
            "lower_precision_safe_modules": [],
        }
    return {"deepspeed": settings, "bf16": False}
