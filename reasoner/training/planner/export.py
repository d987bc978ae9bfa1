"""training_config.json, which the original's script leaves beside the planner's adapter."""

from importlib.metadata import version
from typing import Any

from reasoner.ids import file_hash
from reasoner.training import checkpoints
from reasoner.training.grpo.questions import Questions
from reasoner.training.planner.spec import PlannerGrpoSpec

TRAINING_CONFIG = "training_config.json"


def write_training_config(spec: PlannerGrpoSpec, found: Questions) -> None:
    """The original's file, with what it lacked: seed, data, revision, versions."""
    grpo, reward = spec.grpo, spec.reward
    facts: dict[str, Any] = {
        "base_model": spec.base_name,
        "lora_r": grpo.lora.r,
        "lora_alpha": grpo.lora.alpha,
        "correctness_weight": reward.correctness_weight,
        "token_weight": reward.token_weight,
        "independence_weight": reward.independence_weight,
        "reward_mode": reward.mode,
        "load_in_4bit": grpo.load_in_4bit,
        "seed": spec.seed,
        "data": {"fingerprint": file_hash(spec.rows), **found.counts()},
        "revision": spec.revision or None,
        "versions": {name: version(name) for name in ("trl", "transformers", "peft", "torch")},
    }
    checkpoints.write_json(spec.output / TRAINING_CONFIG, facts)
