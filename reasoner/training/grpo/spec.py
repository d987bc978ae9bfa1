"""What a GRPO program is told, whatever it trains. Importing this loads no torch."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.config.grpo import GrpoConfig
from reasoner.config.smart import EngineConfig
from reasoner.tracking import Tracking
from reasoner.training.specs import Device, Spec


@dataclass(frozen=True)
class GrpoSpec(Spec):
    """One GRPO training of an adapter.

    `rows` are `records.Problem`. Results: the adapter in `output` (with the tokenizer, training.json, metrics.jsonl and
    examples.jsonl), times and memory in `work/metrics.json`.
    """

    base: Path
    """Folder of the base model: config, tokenizer, safetensors weights."""
    base_name: str
    """The base's lasting name, written into the adapter."""
    rows: Path
    """JSON Lines of training problems."""
    output: Path
    """Folder for the adapter; must be empty or absent."""
    work: Path
    """Folder for checkpoints; the same folder again resumes from the last complete one."""
    engine: EngineConfig
    grpo: GrpoConfig = field(default_factory=GrpoConfig)
    start: Path | None = None
    """An adapter to go on from; unset begins with a fresh one."""
    base_fingerprint: str = ""
    seed: int = 0
    device: Device = "auto"
    threads: int | None = None
    processes: int = 1
    """Training processes, one a device; the first samples and judges. They share a step's completions."""
    engines: int = 1
    """Engines that share the sampling, one a device (or a group of `tensor_parallel_size` devices). A server, and a
    4-bit base, are one whatever this says."""
    tracking: Tracking | None = None
    """The W&B run that shows this training; it decides nothing. Its key comes from the environment."""

    @property
    def samplers(self) -> int:
        """Engines that this training starts to sample with; 0 where a server or the trainer's own model does."""
        return 0 if self.grpo.server.url or self.grpo.load_in_4bit else self.engines

    @property
    def engine_options(self) -> dict[str, Any]:
        """The options of its engines: `engine`'s, and what `grpo.engine` changes."""
        return {**self.engine.options, **self.grpo.engine}
