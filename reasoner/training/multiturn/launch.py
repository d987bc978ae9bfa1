"""Starts the multi-turn training program as a child process, and what comes back of it. Loads no torch."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reasoner.engines.start import engine_devices
from reasoner.errors import ModelError
from reasoner.training import launch
from reasoner.training.adapter import TRAINING
from reasoner.training.multiturn.spec import MultiTurnSpec
from reasoner.training.runtime import METRICS_FILE

MODULE = "reasoner.training.multiturn.program"
OnProgress = Callable[[dict[str, Any]], None]


def run_multiturn(
    spec: MultiTurnSpec, log: Path, on_progress: OnProgress | None = None, timeout: float | None = None
) -> dict[str, Any]:
    """Train in a child process; returns training.json and the times. The same call resumes after a crash.

    `on_progress` gets `{"done", "total", "step", …}` after every iteration and validation.
    """
    if spec.config.samplers > 1:  # too few cards are told before anything starts
        engine_devices(spec.config.engine.options, spec.config.samplers)
    saved = spec.save(spec.work / "multiturn.json")
    command = launch.program_argv(MODULE, saved, spec.config.trainers, spec.device)
    key = launch.server_key(spec.config.compute.server.url)
    launch.run_program(command, spec.work, log, on_progress, timeout, key)
    read = (spec.output / TRAINING, spec.work / METRICS_FILE)
    training, metrics = (json.loads(path.read_text(encoding="utf-8")) for path in read)
    return {"training": training, "metrics": metrics}


def fetch_encoder(name: str) -> None:
    """Have an encoder of the Hub in the local cache, since the training program is offline. Raises ModelError."""
    from reasoner.training.multiturn.encoder import encoder_folder

    source = encoder_folder(name)
    if Path(source).is_dir():
        return
    from huggingface_hub import snapshot_download

    try:
        snapshot_download(
            source, allow_patterns=["*.safetensors", "*.json", "*.txt", "tokenizer*", "merges.txt"]
        )
    except Exception as error:  # httpx, hub and OS errors alike
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ModelError(
            f"encoder {name}: not a folder and not to be had from the Hub ({first}); name a folder, or use "
            "value_backbone=shared or critic_lm=base"
        ) from error
