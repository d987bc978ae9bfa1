"""The estimate of a GRPO training, whatever is trained."""

from collections.abc import Sequence
from typing import Any

from reasoner.config.grpo import GrpoConfig
from reasoner.config.smart import EngineConfig
from reasoner.config.training import TrainConfig
from reasoner.planning import memory, roofline
from reasoner.planning.estimate import Estimate, Scene
from reasoner.planning.memory import TrainingShape


def engine_of(grpo: GrpoConfig, engine: EngineConfig) -> EngineConfig:
    """The engine as it is while the trainer shares the card."""
    return engine.model_copy(update={"options": {**engine.options, **grpo.engine}})


def telling_questions(scene: Scene, arguments: dict[str, Any]) -> Estimate:
    """How many are left is not known: all are assumed."""
    return Estimate(0.5, expected=dict(scene.facts(arguments["problems"])))


def training(
    scene: Scene, grpo: GrpoConfig, prompt: float, completion: float, start: float, step: Sequence[Estimate],
    notes: tuple[str, ...],
) -> Estimate:  # fmt: skip
    """`start` is the seconds until the engine runs, once; `step` what a step generates, the policy's completions first.
    It scores these once without and once with a gradient. `prompt` and `completion` are tokens."""
    each = grpo.batch_size * grpo.grad_accum
    completions = float(grpo.max_steps * each)
    length = min(prompt, grpo.max_prompt_length) + min(completion, grpo.max_completion_length)
    config = TrainConfig(
        batch_size=grpo.batch_size, grad_accum=grpo.grad_accum, lora=grpo.lora, precision=grpo.precision,
        gradient_checkpointing=grpo.gradient_checkpointing, nf4_above_gib=0 if grpo.load_in_4bit else None,
        max_length=max(8, grpo.max_prompt_length + grpo.max_completion_length),
    )  # fmt: skip
    shape: TrainingShape = scene.shape(config, length)
    need = memory.training(scene.arch, shape, grpo.lora, scene.on_card)
    learnt = roofline.training(
        scene.arch, scene.speed.device, tokens=completions * length, seen_only=completions * length,
        recompute=grpo.gradient_checkpointing, steps=grpo.max_steps * grpo.grad_accum,
        looks=grpo.max_steps * grpo.grad_accum, layer_step=scene.layer_step,
        share=scene.speed.share("train", "bf16" if shape.compute == "bfloat16" else "fp32"),
    )  # fmt: skip
    adapter = scene.arch.lora_weights(grpo.lora) * 4
    scene.engine = ""
    return Estimate(
        scene.child(training=True) + start + grpo.max_steps * sum(made.seconds for made in step) + learnt,
        grpo.max_steps * sum(made.prompt_tokens for made in step),
        grpo.max_steps * sum(made.new_tokens for made in step), round(completions * length),
        need.device + step[0].device_bytes, need.host + step[0].host_bytes,
        adapter * (1 + 3 * (grpo.save_total_limit + 1)), notes,
        f"set grpo.batch_size={max(1, grpo.batch_size // 2)} grpo.grad_accum={grpo.grad_accum * 2}, "
        "grpo.gradient_checkpointing=true or a lower grpo.engine.gpu_memory_utilization",
    )  # fmt: skip
