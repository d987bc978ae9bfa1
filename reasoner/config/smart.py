"""The configuration of a SMART run. Defaults are the method's; the files under configs/ choose model and size."""

from typing import Any, Literal

from pydantic import Field, model_validator

from reasoner.config.base import Section
from reasoner.config.data import DataConfig
from reasoner.records import Sampling, Strategy

Dtype = Literal["bfloat16", "float16", "float32"]


class ModelConfig(Section):
    """The base model."""

    path: str = Field(min_length=1)
    """A local folder, a Hub id, or `package:NAME/FILE.gguf` for a GGUF file that a Python package ships."""
    revision: str | None = None
    """The Hub commit; unset means the newest, whose commit is recorded."""


class EngineConfig(Section):
    """What generates."""

    kind: Literal["vllm", "transformers", "scripted"] = "vllm"
    """`scripted` answers with a Python function, for tests."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    """Precision to serve in; `auto` is bfloat16, or float32 on a processor without bfloat16 instructions."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Passed to the engine: `max_model_len`, `gpu_memory_utilization`, `block_size`, `max_num_seqs`, …"""


class SamplingConfig(Section):
    """Decoding."""

    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int = Field(default=512, ge=1)
    """The most tokens to generate."""
    stop: tuple[str, ...] = ()
    """Strings that end a generation, besides the end token."""

    def sampling(self) -> Sampling:
        return Sampling(self.temperature, self.top_p, 0, self.max_tokens, self.stop)


class FewShotConfig(Section):
    """Step 0: the base model solves every question with each strategy, shown worked examples."""

    exemplars: str = "gsm"
    """Which exemplars: a name under reasoner/prompts/exemplars/, or the path of a YAML file of the same shape."""
    shots: int = Field(default=8, ge=0)
    """How many exemplars are shown, the first ones of the file."""
    strategies: tuple[Strategy, ...] = (Strategy.COT, Strategy.SUB, Strategy.POT)
    """Which strategies are tried; `[cot, pot]` leaves one out."""
    decoding: SamplingConfig = SamplingConfig(stop=("\nProblem:", "\nQuestion:", "\nInput:"))
    shards: int = Field(default=1, ge=1)
    """Number of parts that the pool is cut into, by hash of the problem's id."""


class Epoch1Config(Section):
    """Which few-shot solutions become training records (METHODS 2.5)."""

    direct: Literal["all_correct", "one_random", "priority"] = "all_correct"
    """Which correct strategies of a question become `(tried none) -> strategy` records."""
    priority: tuple[Strategy, ...] = (Strategy.COT, Strategy.SUB, Strategy.POT)
    """The order for `direct: priority`: only the first correct strategy is kept."""
    refine: bool = True
    """Emit `(tried wrong) -> correct` records."""
    refine_pairs: Literal["all", "one_random"] = "all"
    """All wrong-correct pairs of a question, or one drawn at random."""
    drop_easy: bool = False
    """Leave out questions that every strategy solves."""
    direct_subsample: float = Field(default=1.0, gt=0, le=1)
    """Keep this share of the direct records."""
    balance_strategies: bool = False
    """Cap each strategy at the count of the rarest."""
    max_records: int | None = Field(default=None, ge=1)
    """Keep at most this many records, drawn at random."""


class Epoch2Config(Section):
    """How a policy's own samples become records (METHODS 2.7); used by every epoch after the first."""

    init: Literal["epoch1", "base"] = "epoch1"
    """What is fine-tuned: the merged model of the epoch before, or the base."""
    samples: int = Field(default=10, ge=1)
    """Samples a question and turn."""
    decoding: SamplingConfig = SamplingConfig(temperature=0.7)
    biasing: Literal["none", "add", "replace"] = "add"
    """Implicit biasing: also (`add`) or instead (`replace`) put a strategy that succeeded at turn 2 first."""
    keep_per_strategy: int = Field(default=1, ge=1)
    """How many distinct correct samples of an accepted strategy become records."""
    balance_strategies: bool = False
    """Cap each strategy at the count of the rarest."""
    max_records: int | None = Field(default=None, ge=1)
    """Keep at most this many records, drawn at random."""
    max_turn2: int | None = Field(default=None, ge=1)
    """Ask for at most this many second turns, drawn at random."""


class LoraConfig(Section):
    """The adapter."""

    r: int = Field(default=16, ge=1)
    alpha: int = Field(default=32, ge=1)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    modules: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class TrainConfig(Section):
    """Supervised fine-tuning with LoRA. The effective batch is `batch_size × grad_accum`."""

    lr: float = Field(default=2e-4, gt=0)
    epochs: float = Field(default=1.0, gt=0)
    """Passes over the records."""
    batch_size: int = Field(default=4, ge=1)
    """Records a device and micro-step."""
    grad_accum: int = Field(default=4, ge=1)
    """Micro-steps an optimiser step."""
    scheduler: Literal["linear", "cosine", "constant", "constant_with_warmup"] = "linear"
    warmup_steps: int = Field(default=5, ge=0)
    weight_decay: float = Field(default=0.01, ge=0)
    max_grad_norm: float = Field(default=1.0, gt=0)
    max_length: int = Field(default=1024, ge=8)
    """Tokens of prompt and completion; longer records are left out and counted, never cut."""
    packing: Literal["auto", "on", "off"] = "auto"
    """`on`: the records of a micro-batch in one row without padding, which needs a variable-length attention kernel;
    stops where there is none. `auto`: that where it can be done, else padded batches of like length. `off`: padded
    batches in random order. The records of an optimiser step are as many in every mode."""
    lora: LoraConfig = LoraConfig()
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """`bf16` computes in bfloat16 autocast over float32 adapter weights; `auto` is that on an accelerator."""
    merge_dtype: Dtype = "bfloat16"
    """Precision of the merged model's weights on disk."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    eval_steps: int = Field(default=2000, ge=1)
    """Optimiser steps between validation losses."""
    save_steps: int = Field(default=2000, ge=1)
    """Optimiser steps between checkpoints."""
    save_total_limit: int = Field(default=3, ge=1)
    logging_steps: int = Field(default=10, ge=1)
    min_records: int = Field(default=16, ge=1)
    """With fewer records than this the run stops before training and says so."""


class PromptConfig(Section):
    """The policy's prompt (METHODS 2.2)."""

    template: str = "smart"
    """A name under reasoner/prompts/templates/."""
    refine_context: Literal["name", "full"] = "name"
    """What a second attempt is told of the first: the strategy's name, or the name and the failed solution."""


class EvaluationConfig(Section):
    """First-attempt accuracy, greedy."""

    decoding: SamplingConfig = SamplingConfig()
    confidence: float = Field(default=0.95, gt=0, lt=1)
    max_invalid_prefix: float = Field(default=0.05, ge=0, le=1)
    """A trained policy that names no strategy in more than this share of its responses stops the run."""


class VerifyConfig(Section):
    """Verdicts."""

    workers: int | None = Field(default=None, ge=1)
    """Sandboxes at once; unset means one a core."""
    timeout: float = Field(default=5.0, gt=0)
    """Wall-clock seconds a program may take."""
    max_unscored: float = Field(default=0.05, ge=0, le=1)
    """The run stops when a larger share of verdicts is unscored."""


class ComputeConfig(Section):
    """Where heavy stages run."""

    gpu_pool: str | None = None
    """Name of the work pool that training stages are sent to; unset runs them in this process's machine."""
    idle_seconds: float = Field(default=300.0, gt=0)
    """An engine that nobody uses for this long ends."""


class SmartConfig(Section):
    """A whole SMART run."""

    method: Literal["smart"] = "smart"
    epochs: int = Field(default=2, ge=1)
    """1 stops after the few-shot epoch; 2 adds one self-sampling epoch; more repeat it."""
    seed: int = 0
    model: ModelConfig
    data: DataConfig
    engine: EngineConfig = EngineConfig()
    prompt: PromptConfig = PromptConfig()
    few_shot: FewShotConfig = FewShotConfig()
    epoch1: Epoch1Config = Epoch1Config()
    epoch2: Epoch2Config = Epoch2Config()
    train: TrainConfig = TrainConfig()
    train_later: dict[str, Any] = Field(default_factory=dict)
    """Training settings that differ in later epochs, by the names of `train` (for example `lr`)."""
    verify: VerifyConfig = VerifyConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    compute: ComputeConfig = ComputeConfig()

    @model_validator(mode="after")
    def _later_training_is_valid(self) -> "SmartConfig":
        self.train_for(2)
        return self

    def train_for(self, epoch: int) -> TrainConfig:
        """The training settings of an epoch, counted from 1."""
        if epoch == 1:
            return self.train
        return TrainConfig.model_validate({**self.train.model_dump(), **self.train_later})
