"""How an adapter is trained, and what memory it may take there."""

from typing import Literal

from pydantic import Field, model_validator

from reasoner.config.base import Section
from reasoner.errors import ConfigurationError

Dtype = Literal["bfloat16", "float16", "float32"]
Sharding = Literal["ddp", "fsdp", "deepspeed"]


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
    compile: bool = False
    """Compile each layer of the model with `torch.compile`: less of the host's time a step, a minute more at the start.
    Worth it where a step waits for the host and there are hundreds of them. Needs a C compiler; with `ddp` only."""
    nf4_above_gib: float | None = Field(default=None, ge=0)
    """A base whose weights take more GiB than this in bfloat16 is held in 4-bit NF4 while its adapter is trained
    (QLoRA, arXiv 2305.14314); the adapter is merged into the full weights. Unset never does, 0 always."""
    eval_steps: int = Field(default=2000, ge=1)
    """Optimiser steps between validation losses."""
    save_steps: int = Field(default=2000, ge=1)
    """Optimiser steps between checkpoints."""
    save_total_limit: int = Field(default=3, ge=1)
    logging_steps: int = Field(default=10, ge=1)
    min_records: int = Field(default=16, ge=1)
    """With fewer records than this the run stops before training and says so."""


def largest_part(whole: int, limit: int) -> int:
    """The largest number of at most `limit` that divides `whole`."""
    return next(n for n in range(min(limit, whole), 0, -1) if whole % n == 0)


def share_of(whole: int, processes: int) -> int:
    """Records that each process takes of an optimiser step of `whole`. ConfigurationError if they don't divide."""
    if whole % processes:
        fits = [n for n in range(1, whole + 1) if whole % n == 0]
        raise ConfigurationError(
            f"{whole} records an optimiser step (batch_size × grad_accum) can't be shared equally by "
            f"{processes} processes; set compute.processes to one of {', '.join(map(str, fits))}, "
            "or change grad_accum"
        )
    return whole // processes


class ServerConfig(Section):
    """vLLM's server on another card or machine, which samples for a training that does so as it goes."""

    url: str = ""
    """Its root, such as `http://gpu-host-b:8000`, without `/v1`; empty starts an engine here. Its key, if it wants one,
    comes from VLLM_API_KEY."""
    model: str = "base"
    """The name under which it serves the base."""
    adapters: str = ""
    """A folder that both machines see under this name; adapters are written there. Empty is this machine's memory, for
    a server on this machine."""

    @model_validator(mode="after")
    def _root(self) -> "ServerConfig":
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"compute.server.url={self.url!r} is no address; write http://HOST:PORT")
        if self.url.rstrip("/").endswith("/v1"):
            raise ValueError("compute.server.url is the server's root: leave /v1 out")
        return self


class ComputeConfig(Section):
    """Where heavy stages run, and how much memory they may take there."""

    gpu_pool: str | None = None
    """Name of the work pool that training stages are sent to; unset runs them in this process's machine."""
    idle_seconds: float = Field(default=300.0, ge=0)
    """An engine that nobody uses for this long ends; on a GPU pool it waits so long for the next stage. 0: it ends with
    the process that uses it."""
    engine_memory: float = Field(default=0.85, gt=0, le=1)
    """Share of the card's memory that vLLM takes (read by configs/engine/vllm.yaml)."""
    engine_compilation: dict[str, str | int] = Field(default_factory=dict)
    """vLLM's compilation_config on this card (read by configs/engine/vllm.yaml); empty leaves vLLM's own."""
    one_card: bool = False
    """Training that samples as it goes and its engine share one card: the engine sleeps while the optimiser works."""
    server: ServerConfig = ServerConfig()
    """Who samples for such a training in place of an engine here: only the adapter is sent. `one_card` then says
    nothing."""
    processes: int = Field(default=1, ge=1)
    """Training processes, one a device of this machine. They share the effective batch, which stays; a training may go
    on with another number from its last checkpoint."""
    engines: int = Field(default=1, ge=1)
    """Engines that share a generation, or the sampling of a training, one a device (or a group of
    `engine.options.tensor_parallel_size` devices). Several draw other samples than one."""
    sharding: Sharding = "ddp"
    """Supervised fine-tuning: `ddp`: the whole model on every device. `fsdp`: its weights, gradients and optimiser
    divided among them. `deepspeed`: gradients and optimiser alone, by ZeRO stage 2 (needs the package deepspeed). GRPO
    and multi-turn training hold it whole."""
    micro_batch: int | None = Field(default=None, ge=1)
    """At most this many records a training micro-step; the effective batch, `train.batch_size × train.grad_accum`,
    stays. Unset cuts it as `train` says. Where even this is too much it is halved, and that remembered."""

    @property
    def shares_card(self) -> bool:
        """Whether the engine of a training that samples as it goes must sleep while the optimiser works."""
        return self.one_card and not self.server.url

    def cut(self, train: TrainConfig) -> TrainConfig:
        """`train` with its effective batch in micro-batches that fit."""
        if self.micro_batch is None:
            return train
        whole = train.batch_size * train.grad_accum
        size = largest_part(whole, self.micro_batch)
        return train.model_copy(update={"batch_size": size, "grad_accum": whole // size})
