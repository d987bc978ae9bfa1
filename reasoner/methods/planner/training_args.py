"""`TrainingArgs`: everything that the original's grpo_training.py could be told, under its names and with its
defaults.

The command `train-planner` fills this in; `grpo_config` in stages/planner_folder.py says what it means in the terms of
our configuration. METHODS 4.5 lists the values that its README leaves out (dropout, warm-up, lengths, logging).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TrainingArgs:
    """GRPO training of the planner."""

    base_model: str = "meta-llama/Llama-3.1-8B-Instruct"
    lora_r: int = 16
    lora_alpha: int = 32
    lora_dropout: float = 0.05
    lr: float = 1e-5
    warmup_ratio: float = 0.1
    batch_size: int = 1
    """Completions a device and micro-step; batch_size × grad_accum must hold whole groups."""
    grad_accum: int = 8
    max_steps: int = 500
    num_generations: int = 4
    temperature: float = 0.7
    max_prompt_length: int = 1024
    """Problems whose planner prompt is longer are left out and counted."""
    max_completion_length: int = 512
    correctness_weight: float = 1.0
    token_weight: float = 0.2
    independence_weight: float = 0.3
    max_samples: int = 1000
    output_dir: str = "./grpo_planner_adapter"
    wandb_project: str = "recursive-reasoner-grpo"
    no_wandb: bool = False
    no_4bit: bool = False
    logging_steps: int = 10
    save_steps: int = 100
    save_total_limit: int = 3
