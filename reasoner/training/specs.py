"""What a training program is told: one frozen spec a program, written as JSON, read by the child.

Covers: the specs, their JSON form and the command line that starts the program. Importing this loads no
torch. Not covered: running the child (`launch.py`) and what the programs do (`sft.py`, `merge.py`).
"""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import TypeAdapter, ValidationError

from reasoner.config.training import Sharding, TrainConfig
from reasoner.errors import UsageError
from reasoner.tracking import Tracking

Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["bfloat16", "float16", "float32"]


class Spec:
    """A frozen dataclass that is written to, and read from, one JSON file."""

    def to_json(self) -> str:
        return TypeAdapter(type(self)).dump_json(self, indent=1).decode() + "\n"

    def save(self, path: Path) -> Path:
        """Write the spec to `path`, whose folder is made if it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json(), encoding="utf-8")
        return path

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a spec. Raises `UsageError` for a missing file, a wrong value or an unknown key."""
        try:
            data: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"The spec {path} cannot be read: {error}") from error
        known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
        if not isinstance(data, dict) or not set(data) <= known:
            extra = sorted(set(data) - known) if isinstance(data, dict) else "not a JSON object"
            raise UsageError(f"The spec {path} does not fit {cls.__name__}: {extra}")
        try:
            return TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise UsageError(f"The spec {path} is wrong at `{where}`: {first['msg']}") from error


@dataclass(frozen=True)
class SftSpec(Spec):
    """One supervised fine-tuning with LoRA.

    The rows are `records.TrainingExample`; a completion ends with `end_token`. Results: the adapter in
    `output` (equal bytes for equal inputs), times and memory in `work/metrics.json`.
    """

    base: Path
    """Folder of the base model: config, tokenizer, safetensors weights."""
    base_name: str
    """The base's lasting name, written into the adapter; never a temporary path."""
    train_rows: Path
    """JSON Lines of training examples."""
    output: Path
    """Folder for the adapter; must be empty or absent."""
    work: Path
    """Folder for checkpoints; the same folder again resumes from the last complete one."""
    end_token: str
    """Text of the token that ends a turn, for example `<|im_end|>`."""
    train: TrainConfig = field(default_factory=TrainConfig)
    validation_rows: Path | None = None
    """JSON Lines of validation examples; with them the adapter of lowest validation loss is exported."""
    base_fingerprint: str = ""
    """Fingerprint of the base's files, written into the adapter and checked by the merge."""
    sizes: Path | None = None
    """Folder of notes on the micro-batch that fitted a model, device and length; unset remembers nothing."""
    seed: int = 0
    add_special_tokens: bool = False
    """False for prompts rendered with a chat template, which hold their special tokens already."""
    device: Device = "auto"
    threads: int | None = None
    """CPU threads of torch; unset leaves torch's choice."""
    tracking: Tracking | None = None
    """The W&B run that shows this training; it decides nothing. Its key comes from the environment."""
    processes: int = 1
    """More than one starts the program with a launcher (`launch.sft_argv`). They share the batch that `train` says."""
    sharding: Sharding = "ddp"
    """What is divided among them: nothing but the batch (`ddp`), the model too (`fsdp`), or gradients and
    optimiser (`deepspeed`)."""

    @property
    def divides_model(self) -> bool:
        """Whether the model itself is divided; one process alone has it whole."""
        return self.processes > 1 and self.sharding == "fsdp"


@dataclass(frozen=True)
class MergeSpec(Spec):
    """One merge of an adapter into its base, with the parity check that accepts it."""

    base: Path
    base_name: str
    adapter: Path
    """Folder of the adapter, with the tokenizer that the merged model gets."""
    output: Path
    """Folder for the merged model; must be empty or absent."""
    work: Path
    """Folder for `metrics.json`, where the numbers of the parity check stand."""
    prompts: tuple[str, ...]
    """At least 5 rendered prompts for the parity check."""
    base_fingerprint: str = ""
    dtype: Precision = "bfloat16"
    add_special_tokens: bool = False
    device: Device = "auto"
    threads: int | None = None
    max_tokens: int = 32
    """Length of the greedy continuations that are compared."""
    max_logit_difference: float = 5e-2
    min_greedy_agreement: float = 0.95
