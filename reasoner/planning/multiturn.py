"""Estimates of the multi-turn stages, by the stage's name.

Assumed, and noted with the estimate: a turn is half as long as it may be, and the longest of a batch, which all the
others wait for, as long as it may be; a trained turn's prompt has 200 tokens.
"""

from collections.abc import Callable
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.training import TrainConfig
from reasoner.methods.multiturn import mlmt
from reasoner.planning import memory, roofline
from reasoner.planning.estimate import Estimate, Scene
from reasoner.planning.smart import small

Arguments = dict[str, Any]
PROMPT, FILLED = 200, 0.5
NOTES = (f"turns {FILLED:.0%} as long as they may be",)


def _split(scene: Scene, arguments: Arguments, part: str) -> float:
    return float(scene.facts(arguments["problems"]).get("splits", {}).get(part, 0))


def problems(scene: Scene, arguments: Arguments) -> Estimate:
    """Golds are tried; of code problems the reference programs are run."""
    rows = 1000.0 if arguments["env_type"] == "code" else 8000.0
    return scene.judging(rows, rows if arguments["env_type"] == "code" else 0.0)


def _episodes(
    scene: Scene,
    arguments: Arguments,
    episodes: float,
    config: MultiTurnConfig,
    *,
    attempts_alone: bool = False,
) -> Estimate:
    """Attempt, feedback where a model writes it, refinement."""
    model = arguments["model"]
    solver, advice = config.max_tokens * FILLED, config.guidance_max_tokens * FILLED
    parts: list[tuple[float, float]] = [(solver, PROMPT)]
    if not attempts_alone:
        parts.append((solver, PROMPT + solver + advice))
        if config.use_smart_corrections:
            parts.append((advice, PROMPT + solver))
    made, seconds = [], 0.0
    for new, own in parts:
        made.append(scene.generation(model, config.engine, sequences=episodes, shared=0, own=own, new=new))
        longest = new / FILLED - new
        alone = scene.generation(model, config.engine, sequences=1, shared=0, own=own + new, new=longest)
        seconds += made[-1].seconds + alone.seconds
    answers = (1 if attempts_alone else 2) * episodes
    judged = scene.judging(answers, answers if config.env_type == "code" else 0)
    return Estimate(
        seconds + judged.seconds, sum(m.prompt_tokens for m in made),
        sum(m.new_tokens for m in made), 0, max(m.device_bytes for m in made), max(m.host_bytes for m in made),
        sum(m.disk_bytes for m in made), NOTES, made[0].remedy,
    )  # fmt: skip


def evaluate(scene: Scene, arguments: Arguments) -> Estimate:
    return _episodes(scene, arguments, _split(scene, arguments, "test"), arguments["config"])


def train(scene: Scene, arguments: Arguments) -> Estimate:
    """Rollouts, validations, and updates; of ArCHer, whose rollouts are attempts alone, without its critic.

    Every turn is scored by its adapter and by the reference, then learnt from where its adapter is active; an episode's
    value is read once, and in full-grad learnt through the feedback's adapter."""
    config: MultiTurnConfig = arguments["config"]
    scene.engine = ""
    start = scene.started(arguments["model"], config.engine)
    archer = config.method == "archer"
    iteration = _episodes(scene, arguments, float(config.rollout_size), config, attempts_alone=archer)
    look = _episodes(scene, arguments, _split(scene, arguments, "validation"), config)
    looks = 1 + config.steps // config.eval_freq
    turn = PROMPT + config.max_tokens * FILLED
    episodes = config.steps * config.rollout_size
    learns, seen = episodes * _learnt_turns(config), episodes * 2 * (2 + config.guided - archer)
    if config.uses_value:
        seen += episodes
    longest = PROMPT + 2 * config.max_tokens
    rows, most, smaller = _micro_batch(config, turn, longest)
    plain = TrainConfig(
        batch_size=most, lora=config.lora, precision=config.precision,
        gradient_checkpointing=config.gradient_checkpointing, max_length=longest,
    )  # fmt: skip
    shape = scene.shape(plain, turn)
    need = memory.training(scene.arch, shape, config.lora, scene.on_card)
    learnt = roofline.training(
        scene.arch, scene.speed.device, tokens=learns * turn, seen_only=seen * turn,
        recompute=config.gradient_checkpointing, steps=learns / rows, looks=seen / rows,
        layer_step=scene.layer_step,
        share=scene.speed.share("train", "bf16" if shape.compute == "bfloat16" else "fp32"),
    )  # fmt: skip
    adapters = (2 if config.guided else 1) * scene.arch.lora_weights(config.lora) * 4
    scene.engine = ""
    return Estimate(
        scene.speed.seconds("child") + start + config.steps * iteration.seconds + looks * look.seconds + learnt,
        config.steps * iteration.prompt_tokens + looks * look.prompt_tokens,
        config.steps * iteration.new_tokens + looks * look.new_tokens,
        round(learns * turn), need.device + iteration.device_bytes, need.host + iteration.host_bytes,
        adapters * 7, NOTES,
        f"set {smaller}, gradient_checkpointing=true or a lower "
        "engine.options.gpu_memory_utilization",
    )  # fmt: skip


def _learnt_turns(config: MultiTurnConfig) -> float:
    """Turns of an episode with a gradient, on average over the iterations."""
    if config.method == "archer":
        return config.actor_epochs
    cycle = [(True, True)]
    if config.method == "mlmt":
        cycle = [mlmt.active(step, config.ratio) for step in range(sum(config.ratio))]
    of_solver = 2.0 * config.train_solver
    of_feedback = float(config.guided) + float(config.value_reaches_feedback)
    return sum(of_solver * solver + of_feedback * feedback for solver, feedback in cycle) / len(cycle)


def _micro_batch(config: MultiTurnConfig, turn: float, longest: int) -> tuple[float, int, str]:
    """Rows of a micro-batch of usual turns, rows of the longest ones, and the setting of half as many."""
    if config.micro_tokens is None:
        return config.batch_size, config.batch_size, f"batch_size={max(1, config.batch_size // 2)}"
    tokens = config.micro_tokens
    return max(1.0, tokens / turn), max(1, tokens // longest), f"micro_tokens={max(1, tokens // 2)}"


def control(scene: Scene, arguments: Arguments) -> Estimate:
    return _episodes(scene, arguments, _split(scene, arguments, "test"), arguments["config"])


ESTIMATORS: dict[str, Callable[[Scene, Arguments], Estimate]] = {
    "multiturn-problems": problems, "multiturn-train": train, "multiturn-evaluate": evaluate,
    "multiturn-control": control, "multiturn-report": small(0.5),
}  # fmt: skip
