"""What the multi-turn training program is told; read from one JSON file. Importing this loads no torch."""

from dataclasses import dataclass
from pathlib import Path

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.training.specs import Device, Spec


@dataclass(frozen=True)
class MultiTurnSpec(Spec):
    """One multi-turn training. Results: `output` (solver/, guidance/, value/, training.json, metrics.jsonl,
    episodes/), equal bytes for equal inputs on the CPU; times and memory in `work/metrics.json`."""

    base: Path
    """Folder of the base model: config, tokenizer, safetensors weights."""
    base_name: str
    """The base's lasting name, written into the adapters."""
    problems: Path
    """Folder with train.jsonl and validation.jsonl, rows of `records.Problem`; of test.jsonl, where it is there, the
    lengths are checked."""
    output: Path
    """Folder for the result; must be empty or absent."""
    work: Path
    """Folder for checkpoints; the same folder again resumes from the last complete one."""
    config: MultiTurnConfig
    base_fingerprint: str = ""
    correction_base: Path | None = None
    """Folder of the untrained model that writes corrections, where `config.correction_model` names one."""
    device: Device = "auto"
    threads: int | None = None
    """CPU threads of torch; unset leaves torch's choice."""
