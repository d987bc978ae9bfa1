"""The adapter folder: what a training leaves, and whether an adapter fits a base.

The folder holds adapter_model.safetensors, adapter_config.json, the tokenizer and training.json. Its bytes
are the same for the same inputs: sorted keys, no times, no paths of the machine that made it.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from reasoner.errors import ModelError, UsageError
from reasoner.training.checkpoints import write_json

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
TRAINING = "training.json"


def require_empty(folder: Path) -> None:
    """Make an output folder. Raises `UsageError` if something is in it already."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"The output folder {folder} is not empty; give a new one")
    folder.mkdir(parents=True, exist_ok=True)


def export_adapter(
    checkpoint: Path, output: Path, tokenizer: Any, base_name: str, training: dict[str, Any]
) -> None:
    """Publish a checkpoint's adapter in `output`, with the base's lasting name instead of its path."""
    require_empty(output)
    shutil.copyfile(checkpoint / WEIGHTS, output / WEIGHTS)
    config = json.loads((checkpoint / CONFIG).read_text(encoding="utf-8"))
    config["base_model_name_or_path"] = base_name
    # PEFT keeps them in a set, whose order differs from process to process.
    for key in ("target_modules", "exclude_modules", "modules_to_save"):
        if isinstance(config.get(key), list):
            config[key] = sorted(config[key])
    write_json(output / CONFIG, config)
    tokenizer.save_pretrained(output)
    write_json(output / TRAINING, training)


def read_adapter(folder: Path) -> dict[str, Any]:
    """The configuration of an adapter. Raises `ModelError` if it is no LoRA in safetensors."""
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise ModelError(f"{folder} is not an adapter: {name} is missing")
    try:
        config: dict[str, Any] = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{folder / CONFIG} is not JSON: {error}") from error
    if config.get("peft_type") != "LORA":
        raise ModelError(f"{folder} holds a {config.get('peft_type')} adapter; only LORA can be merged here")
    return config


def check_base(folder: Path, base_name: str, base_fingerprint: str) -> None:
    """Refuse an adapter that was trained on another base. Raises `ModelError`.

    The name must be the same; the fingerprint is compared where both sides have one.
    """
    trained_on = read_adapter(folder).get("base_model_name_or_path")
    if trained_on != base_name:
        raise ModelError(f"The adapter {folder} was trained on {trained_on!r}, not on {base_name!r}")
    try:
        record = json.loads((folder / TRAINING).read_text(encoding="utf-8"))
        known = record["base"]["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if known and base_fingerprint and known != base_fingerprint:
        raise ModelError(
            f"The adapter {folder} was trained on other weights of {base_name!r} "
            f"({known[:12]}…, given {base_fingerprint[:12]}…)"
        )
