"""GRPO's settings, whatever is trained (METHODS 1.3)."""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from reasoner.config.base import Section
from reasoner.config.training import ComputeConfig, LoraConfig, ServerConfig


class GrpoConfig(Section):
    """GRPO. A step has `batch_size × grad_accum` completions, which are whole groups of `num_generations`."""

    lr: float = Field(default=1e-5, gt=0)
    warmup_ratio: float = Field(default=0.1, ge=0, lt=1)
    """Share of the steps in which the learning rate rises."""
    scheduler: Literal["linear", "cosine", "constant", "constant_with_warmup"] = "linear"
    batch_size: int = Field(default=8, ge=1)
    """Completions a micro-step."""
    grad_accum: int = Field(default=8, ge=1)
    """Micro-steps an optimiser step."""
    max_steps: int = Field(default=500, ge=1)
    """Optimiser steps."""
    num_generations: int = Field(default=8, ge=2)
    """Completions a question: a group."""
    temperature: float = Field(default=1.0, gt=0)
    """Of the sampled completions, and of the log-probabilities that they are trained with."""
    max_prompt_length: int = Field(default=1024, ge=8)
    """Questions whose prompt has more tokens are left out and counted."""
    max_completion_length: int = Field(default=512, ge=1)
    """The most tokens to sample."""
    max_samples: int | None = Field(default=1000, ge=1)
    """Training questions, chosen by hash and seed; unset takes all."""
    pass_rate: tuple[float, float] | None = None
    """Train on those questions alone of whose tried answers this share is right, bounds included: `[0.1, 0.9]` (METHODS
    6). The others make groups that are all right or all wrong, which teach nothing. Unset takes all questions."""
    loss: Literal["dapo", "dr_grpo", "grpo", "bnpo"] = "dapo"
    """How the loss is averaged over tokens (METHODS 1.3.1), by TRL's names."""
    beta: float = Field(default=0.0, ge=0)
    """Weight of the KL to the start; 0 loads no reference."""
    epsilon_high: float | None = Field(default=None, gt=0)
    """Upper clipping bound (0.28 in DAPO); unset is 0.2 both ways."""
    scale_rewards: Literal["group", "batch", "none"] = "group"
    """What an advantage is divided by: the standard deviation of its group, of the step, or nothing."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    lora: LoraConfig = LoraConfig(dropout=0.0)
    """No dropout: with it the first step's policy is not the one that sampled."""
    precision: Literal["auto", "bf16", "fp32"] = "auto"
    """`bf16` computes in bfloat16 autocast over float32 adapter weights; `auto` is that on an accelerator."""
    load_in_4bit: bool = False
    """Hold the base in NF4, as the original does. The trainer's own model then also samples, by transformers."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    share_card: bool | None = None
    """The engine sleeps while the optimiser works; unset goes by `compute.one_card`."""
    server: ServerConfig = ServerConfig()
    """Who samples, in place of an engine here; unset goes by `compute.server`."""
    engine: dict[str, Any] = Field(default_factory=dict)
    """Engine options that differ while the trainer shares the card, such as `gpu_memory_utilization`."""
    logging_steps: int = Field(default=10, ge=1)
    save_steps: int = Field(default=100, ge=1)
    """Optimiser steps between checkpoints."""
    save_total_limit: int = Field(default=3, ge=1)
    gate: float | None = Field(default=None, gt=0)
    """Largest difference of sampler and trainer at step 0 in nats a token; unset goes by the precision."""
    example_rows: int = Field(default=4, ge=0)
    """Rows a step in the table of examples."""

    @property
    def content_id(self) -> dict[str, Any]:
        """Where is sampled and who holds the card when changes no result, so it counts in no stage's key."""
        return self.model_dump(exclude={"share_card", "server"})

    def on(self, compute: ComputeConfig) -> Self:
        """What a training is told: where is sampled and who holds the card when follow from the machine; which
        questions are asked was decided before it."""
        server = self.server if self.server.url else compute.server
        shared = compute.one_card if self.share_card is None else self.share_card
        return self.model_copy(
            update={"share_card": shared and not server.url, "server": server, "pass_rate": None}
        )

    @field_validator("pass_rate", mode="before")
    @classmethod
    def _a_range(cls, found: Any) -> Any:
        if found is None:
            return None
        try:
            low, high = found
            holds = 0 <= low <= high <= 1
        except (TypeError, ValueError):
            holds = False
        if not holds:
            raise ValueError("two shares from 0 to 1, the lower one first, such as [0.1,0.9], or null")
        return found

    @model_validator(mode="after")
    def _one_who_samples(self) -> Self:
        if self.load_in_4bit and self.server.url:
            raise ValueError("grpo.load_in_4bit samples by the trainer's own model: it can't use grpo.server")
        return self

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        step = self.batch_size * self.grad_accum
        if step % self.num_generations:
            raise ValueError(
                f"a step has batch_size × grad_accum = {step} completions, which is no multiple of num_generations="
                f"{self.num_generations}"
            )
        return self
