"""What this machine measured of itself, in HOME/calibration.json: the device, the shares of the roofline, fixed times.

Without it a plan stands on published shares, and says so. `reasoner plan NAME --calibrate` measures (see `measure`).
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from reasoner.errors import DataError
from reasoner.hardware import cpu_computes_bf16
from reasoner.planning.device import Device
from reasoner.planning.roofline import ON_CPU, ON_CPU_BF16, Efficiency
from reasoner.store.durable import replace_file

SCHEMA = 1
FILE = "calibration.json"
SECONDS = {
    "flow": 5.0,
    "stage": 0.03,
    "engine-vllm-cpu": 25.0,
    "engine-vllm-cpu-again": 10.0,
    "engine-vllm": 69.0,
    "engine-vllm-again": 34.0,
    "graphs": 5.0,
    "compilation": 30.0,
    "engine-transformers": 15.0,
    "engine-scripted": 0.0,
    "child": 15.0,
    "trainer": 12.0,
    "layer-step": 0.011,
    "layer-token": 0.0016,
    "layer-launch": 0.00065,
    "layer-launch-pieces": 0.0004,
    "joined-step": 0.0062,
    "token": 1.9e-5,
    "prompt-token": 2.6e-6,
    "prompt": 0.0001,
    "record": 0.0015,
    "byte": 1.25e-9,
    "program": 0.025,
    "verdict": 0.0003,
    "compared-question": 0.0013,
    "conversion": 2e-7,
}
"""Seconds unless measured. Which runs they come from, and how far off they were on others: docs/plan.md.

Starts: a server's, a task's; an engine's and one after the first, when its libraries are in memory; on a card CUDA
graphs and torch.compile; a child of training or merging, and what a training on a card takes more (TRL, CUDA, the last
checkpoint).

The host beside a card, for a layer: a micro-step of training, a token of the parity check, a decode step launched
kernel by kernel or in vLLM's compiled pieces. For a decode step that a prompt joins; for a token that is written, and
one of a prompt.

One core: a prompt rendered, a record rendered, cut into tokens and checked, a byte of weights read, written or hashed,
a program in the sandbox (cores share them), an answer compared, a question compared with all others, a weight converted
from GGUF."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """One measurement of a machine. `shares` and `seconds` hold only what was measured."""

    device: Device
    measured: str
    """When, ISO 8601."""
    versions: Mapping[str, str]
    model: str = ""
    """What was run for it."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """`prefill-KIND-DTYPE`, `decode-KIND-DTYPE`, `train-PRECISION`: reached share of the roofline."""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """By the names of `SECONDS`."""

    @property
    def words(self) -> str:
        """For the head of a plan."""
        return f"calibrated {self.measured[:16]} on {self.device.name}" + (
            f" with {self.model}" if self.model else ""
        )


def read(home: Path) -> Calibration | None:
    """The calibration under `home`, or None. DataError for a file that is not one."""
    path = home / FILE
    if not path.is_file():
        return None
    try:
        row: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if row.pop("schema") != SCHEMA:
            raise ValueError("of another version")
        return Calibration(**{**row, "device": Device(**row["device"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: no calibration ({error}); remove it, or measure anew: reasoner plan NAME "
                        "--calibrate") from None  # fmt: skip


def write(home: Path, found: Calibration) -> Path:
    """Keep it under `home`."""
    home.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"schema": SCHEMA, **asdict(found)}, indent=1, sort_keys=True) + "\n"
    replace_file(home / FILE, [text.encode()])
    return home / FILE


@dataclass(frozen=True, slots=True)
class Speed:
    """Shares and fixed times of one device: the calibration's where it is of that device, else the defaults."""

    device: Device
    found: Calibration | None = None

    def share(self, kind: str, *names: str) -> float:
        """Reached share of the roofline: `share("decode", "vllm", "float32")`."""
        usual = Efficiency()
        if self.device.is_cpu:
            usual = ON_CPU_BF16 if "bfloat16" in names and cpu_computes_bf16() else ON_CPU
        default: float = getattr(usual, kind)
        return float(self.found.shares.get("-".join((kind, *names)), default)) if self.found else default

    def seconds(self, name: str) -> float:
        measured = self.found.seconds if self.found else {}
        return float(measured.get(name, SECONDS[name]))

    def measured(self, name: str) -> bool:
        """Whether `seconds` is the calibration's."""
        return self.found is not None and name in self.found.seconds

    @property
    def words(self) -> str:
        """What the estimates stand on, for the head of a plan."""
        if self.found is None:
            return "not calibrated (reasoner plan NAME --calibrate): usual shares of the roofline"
        if not self.found.shares:
            return (
                "processor measured, engine and training not (reasoner plan NAME --calibrate): usual shares"
            )
        return self.found.words

    @classmethod
    def of(cls, device: Device, found: Calibration | None) -> "Speed":
        """A calibration of another device says nothing of this one."""
        if found is None or found.device.name != device.name:
            return cls(device)
        return cls(found.device, found)
