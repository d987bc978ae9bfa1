"""Where the time of a step of TRL's GRPOTrainer goes: its own methods, each counted under its part."""

from collections.abc import Callable
from typing import Any

from reasoner.onpolicy.parts import Part, Parts

PREPARE = "prepare"
"""Decoding, padding, advantages: what TRL does around sampling and verdicts."""


def timed(owner: Any, name: str, parts: Parts, part: str, when: Callable[[], bool] = lambda: True) -> None:
    """Count calls of `owner.name` under `part`."""
    inner = getattr(owner, name)

    def call(*arguments: Any, **named: Any) -> Any:
        if not when():
            return inner(*arguments, **named)
        with parts.part(part):
            return inner(*arguments, **named)

    setattr(owner, name, call)


def count_parts(trainer: Any, parts: Parts) -> None:
    """Count what the trainer does beside sampling; seconds that no part claims are `other`."""
    import torch
    from transformers import TrainerCallback

    timed(trainer, "training_step", parts, Part.FORWARD_BACKWARD)
    timed(trainer, "_prepare_inputs", parts, PREPARE)
    timed(trainer, "_calculate_rewards", parts, Part.VERDICT)
    timed(trainer.accelerator, "clip_grad_norm_", parts, Part.OPTIMISER)
    scoring = "_get_per_token_logps_and_entropies"
    timed(trainer, scoring, parts, Part.LOGPROBS, lambda: not torch.is_grad_enabled())

    class Counting(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
            timed(more["optimizer"], "step", parts, Part.OPTIMISER)

    trainer.add_callback(Counting())
