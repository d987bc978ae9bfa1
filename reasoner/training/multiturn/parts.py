"""Everything of a run that has weights: the policies, the value network or the critic, and their optimisers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.methods.multiturn.episode import FEEDBACK, SOLVER
from reasoner.onpolicy.memory import MicroBatches
from reasoner.training.multiturn.critic import Critic
from reasoner.training.multiturn.optimiser import Optimiser
from reasoner.training.multiturn.policy import Policy
from reasoner.training.multiturn.scoring import Processes
from reasoner.training.multiturn.values import EncoderValue, SharedValue, snapshot

WEIGHTS = "value.safetensors"


@dataclass
class Learned:
    """What a run trains. `before` and `after` are ψ at the start of an update cycle and after the solver's updates."""

    policy: Policy
    tokenizer: Any
    optimisers: dict[str, Optimiser]
    micro: MicroBatches
    value: SharedValue | EncoderValue | None = None
    critic: Critic | None = None
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)

    @property
    def network(self) -> "SharedValue | EncoderValue | Critic | None":
        """The network beside the policies, if there is one."""
        return self.value or self.critic

    def skipped(self) -> dict[str, float]:
        """Metrics: the steps of each optimiser since the last call whose gradient was not finite."""
        return {f"{name}_skipped": float(o.take_skipped()) for name, o in self.optimisers.items()}

    def save(self, folder: Path) -> None:
        """All weights and optimiser states below `folder`."""
        from safetensors.torch import save_file

        for adapter in self.policy.adapters:
            self.policy.save(adapter, folder / adapter)
        if self.network is not None:
            save_file(_owned(self.network.state()), folder / WEIGHTS)
        for name, optimiser in self.optimisers.items():
            save_file(optimiser.state() or {"none": _nothing()}, folder / f"optimiser-{name}.safetensors")
        for name in ("before", "after"):
            if tensors := getattr(self, name):
                save_file(_owned(tensors), folder / f"value-{name}.safetensors")

    def load(self, folder: Path) -> None:
        """Take what `save` left."""
        from safetensors.torch import load_file

        for adapter in self.policy.adapters:
            self.policy.load(adapter, folder / adapter)
        if self.network is not None:
            self.network.load_state(load_file(folder / WEIGHTS))
        for name, optimiser in self.optimisers.items():
            optimiser.load_state(load_file(folder / f"optimiser-{name}.safetensors"))
        for name in ("before", "after"):
            file = folder / f"value-{name}.safetensors"
            setattr(self, name, load_file(file) if file.is_file() else {})


def build(
    config: MultiTurnConfig,
    base: Path,
    base_name: str,
    tokenizer: Any,
    processes: Processes,
    dtype: str,
    log: Callable[[str], None] = print,
) -> Learned:
    """Load the base and make everything fresh. Raises ModelError for a base or an encoder that can't be used."""
    adapters = (SOLVER, FEEDBACK) if config.guided else (SOLVER,)
    accelerator = processes.accelerator
    policy = Policy(
        base, base_name, config.lora, adapters, device=accelerator.device, dtype=dtype, seed=config.seed,
        autocast=accelerator.autocast, gradient_checkpointing=config.gradient_checkpointing,
    )  # fmt: skip
    value: SharedValue | EncoderValue | None = None
    critic = None
    if config.uses_value:
        if config.value_backbone == "shared":
            value = SharedValue(policy, tokenizer, config.max_tokens, config.guidance_max_tokens)
        else:
            value = EncoderValue(config.value_backbone, accelerator.device)
    if config.method == "archer":
        c = config.critic
        critic = Critic(policy, tokenizer, config.critic_lm, c.hidden, c.max_length, config.seed)

    rates: Mapping[str, tuple[Any, float]] = {
        adapter: (policy.parameters(adapter), config.lm_lr if adapter == SOLVER else config.guidance_lr)
        for adapter in adapters
    }
    if value is not None:
        rates = {**rates, "value": (value.parameters(), config.value_lr)}
    if critic is not None:
        rates = {**rates, "critic": (critic.parameters(), config.critic_lr)}
    reduce = processes.sum if processes.count > 1 else None
    optimisers = {
        name: Optimiser(
            name, parameters, rate, config.max_grad_norm, config.warmup_steps, reduce,
            # V starts at the mean reward of the rollout that it first learns from: there its bias has no gradient.
            value.head.bias if name == "value" and isinstance(value, SharedValue) else None, log,
        )
        for name, (parameters, rate) in rates.items()
    }  # fmt: skip
    micro = MicroBatches(config.batch_size, log, config.micro_tokens)
    learned = Learned(policy, tokenizer, optimisers, micro, value, critic)
    if value is not None and config.shaping == "v3_minus_vstar":
        learned.before = learned.after = snapshot(value)
    return learned


def _owned(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Contiguous copies, as safetensors wants them."""
    return {name: tensor.clone().contiguous() for name, tensor in tensors.items()}


def _nothing() -> Any:
    import torch

    return torch.zeros(1)
