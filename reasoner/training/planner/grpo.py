"""GRPO training of the planner, as a program: `python -m reasoner.training.planner.grpo SPEC.json`.

Covers: TRL's GRPOTrainer on the on-policy loop (one engine for the policy's samples and the frozen worker,
the adapter sent alone), LoRA, the step-0 gate, resuming from the last complete checkpoint, halving the
micro-batch when memory is full, export of the last adapter with its curves. Or, with a 4-bit base, sampling
by the trainer's own model.

Departs from the original: ground truth comes in a column, one prompt and template in training and inference,
one copy of the base for planner and worker, worker calls in two batches a step.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from reasoner.errors import DataError, ModelError, UsageError
from reasoner.ids import canonical, content_hash, file_hash
from reasoner.methods.planner.independence import SentenceEmbedder
from reasoner.methods.planner.pipeline import PipelineExecutor
from reasoner.methods.planner.prompts import PlannerPrompts, load_prompts
from reasoner.methods.planner.reward import PipelineRewardFunction
from reasoner.methods.planner.worker import FrozenWorker, fitting
from reasoner.process.progress import report
from reasoner.prompts import ChatRenderer
from reasoner.records import Problem
from reasoner.store.rows import read_rows
from reasoner.tracking import tracked
from reasoner.training import adapter, checkpoints, runtime
from reasoner.training.micro_batch import Batch, BatchRecord, Memory, train_halving
from reasoner.training.planner import questions
from reasoner.training.planner.export import publish
from reasoner.training.planner.journal import Journal
from reasoner.training.planner.sampling import Sampling
from reasoner.training.planner.spec import GrpoSpec
from reasoner.training.planner.trainer import GrpoJob

FULL = (
    "one completion a micro-step; set grpo.gradient_checkpointing=true, lower grpo.max_completion_length, or give the "
    "engine less memory (grpo.engine.gpu_memory_utilization)"
)
VERSION = 2
"""Part of the identity of a work folder; raised when the meaning of a checkpoint changes."""


def identity(spec: GrpoSpec, prompts: PlannerPrompts, device: str) -> str:
    """The hash of all that decides the adapter: questions, base, prompts, settings, seed, device, library
    versions."""
    from importlib.metadata import version

    base: Any = spec.base_fingerprint or [
        [p.name, p.stat().st_size, file_hash(p) if p.suffix == ".json" else ""]
        for p in sorted(spec.base.iterdir())
        if p.is_file()
    ]
    start = file_hash(spec.start / adapter.WEIGHTS) if spec.start else ""
    settings = [spec.grpo, spec.worker, spec.reward, spec.engine, spec.seed, device]
    libraries = [version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate")]
    content = [VERSION, spec.base_name, base, start, file_hash(spec.rows), prompts, settings, libraries]
    return content_hash(content)


def settled(spec: GrpoSpec, device: str) -> GrpoSpec:
    """`auto` precision settled: bfloat16 autocast on an accelerator, float32 on a CPU."""
    if spec.grpo.precision != "auto":
        return spec
    precision = "bf16" if device == "cuda" else "fp32"
    return replace(spec, grpo=spec.grpo.model_copy(update={"precision": precision}))


def train(spec: GrpoSpec, report: Callable[..., Any], log: Callable[[str], None]) -> None:
    """Train `spec` to the end and export the adapter. Raises the errors of `reasoner.errors`."""
    started = time.monotonic()
    device = runtime.pick_device(spec.device)
    spec = settled(spec, device)
    if not (spec.base / "config.json").is_file():
        raise ModelError(f"{spec.base} is not a model folder: config.json is missing")
    adapter.require_empty(spec.output)
    prompts, renderer = load_prompts(spec.prompts), ChatRenderer(spec.base)
    tokenizer = runtime.load_tokenizer(spec.base)
    if spec.start is not None:
        adapter.check_base(spec.start, spec.base_name, spec.base_fingerprint)
    key = identity(spec, prompts, device)
    resume = checkpoints.open_work(spec.work, key, log)
    configured = Batch(spec.grpo.batch_size, spec.grpo.grad_accum)
    record = BatchRecord(spec.work, configured, Memory(None, {}), fresh=resume is None)
    chosen = questions.choose(
        [Problem.from_row(row) for row in read_rows(spec.rows)], spec.grpo.max_samples, spec.seed
    )
    found = questions.planner_rows(chosen, prompts, renderer.render, tokenizer, spec.grpo.max_prompt_length)
    require_a_step(spec, found)
    announce(spec, found, record.batch, device, log)
    if resume is not None:
        log(f"going on from step {checkpoints.step_of(resume)}")
    settings = canonical({"grpo": spec.grpo, "worker": spec.worker, "reward": spec.reward})
    tracking = spec.tracking and replace(spec.tracking, run_id=key[:16])
    with tracked(tracking, log, settings) as run, Sampling(spec, device, tokenizer) as sampling:
        journal = Journal(spec.work, spec.grpo.example_rows, run)
        job = make_job(spec, device, tokenizer, found, prompts, renderer, sampling, journal, report, log)
        train_halving(job, record, resume, FULL)
        restarts = sampling.restarts
    publish(spec, record, found, prompts, journal)
    done = checkpoints.step_of(resume) if resume else 0
    metrics = {"resumed_from_step": done, "engine_restarts": restarts,
               "seconds": round(time.monotonic() - started, 3), **runtime.peak_memory(device)}  # fmt: skip
    checkpoints.write_json(spec.work / runtime.METRICS_FILE, metrics)


def make_job(
    spec: GrpoSpec, device: str, tokenizer: Any, found: questions.Questions, prompts: PlannerPrompts,
    renderer: ChatRenderer, sampling: Sampling, journal: Journal, report: Callable[..., Any],
    log: Callable[[str], None],
) -> GrpoJob:  # fmt: skip
    """Join sampler, worker, reward and trainer."""
    worker = FrozenWorker(
        sampling.complete, renderer.render, prompts, spec.worker.decoding.sampling(), seed=spec.worker.seed,
        fits=fitting(tokenizer, sampling.max_model_len, spec.worker.decoding.max_tokens),
    )  # fmt: skip
    executor = PipelineExecutor(worker, SentenceEmbedder(spec.reward.embedder, device))

    def judged(found: dict[str, Any]) -> None:
        sampling.rest()
        journal.rollout(found)

    reward = PipelineRewardFunction(
        executor, spec.reward, spec.grpo.num_generations, samples=spec.worker.samples, on_step=judged
    )
    rollout = sampling.rollout(found.add_special_tokens)
    return GrpoJob(spec, device, tokenizer, found, rollout, reward, journal, report, log, sampling.release)


def require_a_step(spec: GrpoSpec, found: questions.Questions) -> None:
    """DataError where there are fewer questions than a step has groups: TRL would train nothing."""
    groups = spec.grpo.batch_size * spec.grpo.grad_accum // spec.grpo.num_generations
    if len(found.rows) < groups:
        raise DataError(
            f"{len(found.rows)} training questions ({found.too_long} more are too long); a step takes {groups}. Give "
            "more of them, or lower grpo.grad_accum"
        )


def announce(
    spec: GrpoSpec, found: questions.Questions, batch: Batch, device: str, log: Callable[[str], None]
) -> None:
    """Say what will be done."""
    grpo, groups = spec.grpo, batch.size * batch.accum // spec.grpo.num_generations
    log(
        f"{len(found.rows)} questions ({found.too_long} too long), {grpo.max_steps} steps of {groups} questions × "
        f"{grpo.num_generations} plans, {grpo.precision} on {device}, reward {spec.reward.mode}"
    )


def main(arguments: Sequence[str]) -> int:
    """Exit status 0 when the adapter is written; see `runtime.run_program` for failures."""
    try:
        if len(arguments) != 1:
            raise UsageError(
                "give one argument, the spec: python -m reasoner.training.planner.grpo SPEC.json"
            )
        spec = GrpoSpec.load(Path(arguments[0]))
    except UsageError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    runtime.prepare_process(spec.threads, tracked=spec.tracking is not None)
    return runtime.run_program(spec.work, lambda: train(spec, report, runtime.say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
