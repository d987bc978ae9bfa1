"""Estimates of the planner's stages, by the stage's name.

Assumed, and noted with the estimate: a plan of 110 tokens, 70 where the shortest was chosen; 2.5 calls of the worker a
plan, each of 210 tokens or of as many as it may write; half of the plans lead to the right answer. Tokens and calls are
those of a base of 1.5B and of its warm start (docs/results/LOG.md, 2026-11-30): 112 and 111 tokens, 1.8 and 2.8 calls,
209 and 197 tokens.
"""

from collections.abc import Callable
from typing import Any

from reasoner.config.grpo import GrpoConfig
from reasoner.config.smart import EngineConfig
from reasoner.methods.planner.prompts import load_prompts
from reasoner.planning import grpo
from reasoner.planning.estimate import Estimate, Scene
from reasoner.planning.smart import CHAT, RIGHT, question_tokens, rows_of, small
from reasoner.records import ArtifactRef

Arguments = dict[str, Any]
PLAN, TARGET, CALLS, ANSWER = 110, 70, 2.5, 210
NOTES = (f"{PLAN} tokens a plan, {CALLS:g} worker calls of up to {ANSWER} tokens",)


def prompt_tokens(scene: Scene, arguments: Arguments) -> float:
    """Tokens of the planner's prompt."""
    messages = load_prompts(arguments["prompt"].template).plan("")
    return sum(scene.tokens.count(m["content"]) for m in messages) + question_tokens(scene, arguments) + CHAT


def _carried_out(
    scene: Scene, arguments: Arguments, plans: float, max_plan: int, engine: EngineConfig, questions: float
) -> tuple[Estimate, Estimate]:
    """Writing the plans, and the worker's calls for them."""
    model: ArtifactRef = arguments["model"]
    worker = arguments["worker"]
    prompt = prompt_tokens(scene, arguments)
    written = scene.generation(
        model, engine, sequences=plans, groups=questions, shared=0, own=prompt, new=min(PLAN, max_plan)
    )
    called = scene.generation(
        model, engine, sequences=plans * CALLS * worker.samples, shared=0, own=question_tokens(scene, arguments) + CHAT,
        new=min(ANSWER, worker.decoding.max_tokens),
    )  # fmt: skip
    return written, called


def _sum(written: Estimate, called: Estimate, **expected: Any) -> Estimate:
    return Estimate(
        written.seconds + called.seconds, written.prompt_tokens + called.prompt_tokens,
        written.new_tokens + called.new_tokens, 0, max(written.device_bytes, called.device_bytes),
        max(written.host_bytes, called.host_bytes), written.disk_bytes + called.disk_bytes, NOTES, written.remedy,
        expected,
    )  # fmt: skip


def candidates(scene: Scene, arguments: Arguments) -> Estimate:
    config, pool = arguments["config"], rows_of(scene, arguments, "pool")
    made = _carried_out(
        scene, arguments, pool * config.samples, config.decoding.max_tokens, arguments["engine"], pool
    )
    return _sum(
        *made, rows=pool * config.samples, train=rows_of(scene, arguments, "train"),
        validation=rows_of(scene, arguments, "validation"), prompt=prompt_tokens(scene, arguments),
    )  # fmt: skip


def targets(scene: Scene, arguments: Arguments) -> Estimate:
    """The share of questions for which one of the plans is right."""
    facts, config = scene.facts(arguments["runs"]), arguments["config"]
    solved = 1 - (1 - RIGHT) ** config.samples
    most = config.max_records or float("inf")
    number = {s: round(min(facts.get(s, 0) * solved * config.keep, most)) for s in ("train", "validation")}
    return Estimate(0.5, expected={**number, "prompt": facts.get("prompt", 250)}, notes=NOTES)


def train_sft(scene: Scene, arguments: Arguments) -> Estimate:
    facts, config = scene.facts(arguments["records"]), arguments["config"].train
    return scene.training(
        config, records=facts.get("train", 0), validation=facts.get("validation", 0),
        prompt=facts.get("prompt", 250), completion=TARGET,
    )  # fmt: skip


def arms(scene: Scene, arguments: Arguments) -> Estimate:
    count = rows_of(scene, arguments, arguments["split"]) * len(arguments["names"])
    most = arguments["config"].decoding.max_tokens
    return _sum(*_carried_out(scene, arguments, count, most, arguments["engine"], count))


def train_grpo(scene: Scene, arguments: Arguments) -> Estimate:
    """Every step generates for all of its completions, scores them once without and once with a gradient."""
    scene.engine = ""
    config: GrpoConfig = arguments["grpo"]
    engine = grpo.engine_of(config, arguments["engine"])
    start = scene.started(arguments["model"], engine)
    each = float(config.batch_size * config.grad_accum)
    step = _carried_out(
        scene, arguments, each, config.max_completion_length, engine, each / config.num_generations
    )
    return grpo.training(scene, config, prompt_tokens(scene, arguments), PLAN, start, step, NOTES)


def merge(scene: Scene, arguments: Arguments) -> Estimate:
    return scene.merging()


ESTIMATORS: dict[str, Callable[[Scene, Arguments], Estimate]] = {
    "plan-candidates": candidates, "plan-targets": targets, "planner-sft": train_sft, "plan-arms": arms,
    "plan-gate": small(0.1), "plan-questions": grpo.telling_questions, "planner-grpo": train_grpo,
    "planner-merge": merge, "planner-evaluation": small(1.0), "planner-report": small(0.5), "publish": small(5.0),
}  # fmt: skip
