"""GRPO training as a program, whatever is trained: a method gives the prompts and the reward.

Covers: TRL's GRPOTrainer on the on-policy loop (one engine or several, the adapter sent alone), LoRA, the step-0 gate,
resuming from the last complete checkpoint, several processes (the first samples and judges), halving the micro-batch
when memory is full, export of the last adapter with its curves. Or, with a 4-bit base, sampling by the trainer's own
model.
"""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from reasoner.errors import ModelError, UsageError
from reasoner.ids import canonical, content_hash, file_hash
from reasoner.onpolicy.parts import device_parts
from reasoner.process.progress import report
from reasoner.records import Problem
from reasoner.store.rows import read_rows
from reasoner.tracking import tracked
from reasoner.training import adapter, checkpoints, runtime, together
from reasoner.training.grpo import questions
from reasoner.training.grpo.export import publish
from reasoner.training.grpo.journal import Journal
from reasoner.training.grpo.method import Method
from reasoner.training.grpo.sampling import Sampling
from reasoner.training.grpo.sharing import SharedReward, shared_rollout
from reasoner.training.grpo.spec import GrpoSpec
from reasoner.training.grpo.trainer import GrpoJob
from reasoner.training.micro_batch import Batch, BatchRecord, Memory, train_halving

FULL = (
    "one completion a micro-step; set grpo.gradient_checkpointing=true, lower grpo.max_completion_length, or give the "
    "engine less memory (grpo.engine.gpu_memory_utilization)"
)
VERSION = 3
"""Part of the identity of a work folder; raised when the meaning of a checkpoint changes."""
S = TypeVar("S", bound=GrpoSpec)
Say = Callable[[str], None]


def identity(spec: GrpoSpec, method: Method, device: str) -> str:
    """The hash of all that decides the adapter: questions, base, prompts, settings, seed, device, library
    versions."""
    from importlib.metadata import version

    base: Any = spec.base_fingerprint or [
        [p.name, p.stat().st_size, file_hash(p) if p.suffix == ".json" else ""]
        for p in sorted(spec.base.iterdir())
        if p.is_file()
    ]
    start = file_hash(spec.start / adapter.WEIGHTS) if spec.start else ""
    settings = [spec.grpo, *method.settings, spec.engine, spec.seed, device]
    libraries = [version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate")]
    content = [
        VERSION,
        spec.base_name,
        base,
        start,
        file_hash(spec.rows),
        method.prompts,
        settings,
        libraries,
    ]
    return content_hash(content)


def settled(spec: S, device: str) -> S:
    """`auto` precision settled: bfloat16 autocast on an accelerator, float32 on a CPU."""
    if spec.grpo.precision != "auto":
        return spec
    precision = "bf16" if device == "cuda" else "fp32"
    return replace(spec, grpo=spec.grpo.model_copy(update={"precision": precision}))


def train(spec: S, make: Callable[[S], Method], report: Callable[..., Any], log: Say) -> None:
    """Train `spec` by the method that `make` gives to the end and export the adapter. Raises the errors of
    `reasoner.errors`."""
    started = time.monotonic()
    device = runtime.pick_device(spec.device)
    spec = settled(spec, device)
    if not (spec.base / "config.json").is_file():
        raise ModelError(f"{spec.base} is not a model folder: config.json is missing")
    processes = open_processes(spec, device)
    first = processes.is_main_process
    if first:
        adapter.require_empty(spec.output)
    else:
        log = _silent
    if spec.start is not None:
        adapter.check_base(spec.start, spec.base_name, spec.base_fingerprint)
    method, tokenizer = make(spec), runtime.load_tokenizer(spec.base)
    key = identity(spec, method, device)
    with processes.main_process_first():
        resume = checkpoints.open_work(spec.work, key, log)
    configured = Batch(spec.grpo.batch_size, spec.grpo.grad_accum)
    shared = configured.shared_by(spec.processes)
    with processes.main_process_first():
        record = BatchRecord(spec.work, shared, Memory(None, {}), fresh=resume is None)
    chosen = questions.choose(
        [Problem.from_row(row) for row in read_rows(spec.rows)], spec.grpo.max_samples, spec.seed
    )
    found = questions.prompted(chosen, method.render, tokenizer, spec.grpo.max_prompt_length)
    groups = configured.size * configured.accum // spec.grpo.num_generations
    questions.require_a_step(found, groups)
    log(
        f"{len(found.rows)} questions ({found.too_long} too long), {spec.grpo.max_steps} steps of {groups} questions × "
        f"{spec.grpo.num_generations} {method.completions}, {spec.grpo.precision} on {device}"
    )
    if resume is not None:
        log(f"going on from step {checkpoints.step_of(resume)}")
    settings = canonical({"grpo": spec.grpo, **method.facts})
    tracking = spec.tracking and replace(spec.tracking, run_id=key[:16])
    parts = device_parts(device)
    with (
        tracked(tracking if first else None, log, settings) as run,
        Sampling(spec, device, tokenizer, parts, samples=first) as sampling,
    ):
        together.wait()  # engines measure what is free on their cards before the models come
        journal = Journal(spec.work, spec.grpo.example_rows, run, method.name, writes=first)
        train_halving(make_job(spec, method, found, sampling, journal, report, log), record, resume, FULL)
        restarts = sampling.restarts
    together.wait()
    if not first:
        return
    publish(spec, method, record, found, journal)
    done = checkpoints.step_of(resume) if resume else 0
    parts.take()
    times = {name: round(seconds, 3) for name, seconds in parts.whole.metrics().items()}
    metrics = {"resumed_from_step": done, "engine_restarts": restarts, **times,
               "seconds": round(time.monotonic() - started, 3), **runtime.peak_memory(device)}  # fmt: skip
    checkpoints.write_json(spec.work / runtime.METRICS_FILE, metrics)


def open_processes(spec: GrpoSpec, device: str) -> Any:
    """accelerate's view of the training's processes. Raises InfrastructureError without a device for each."""
    from accelerate import PartialState

    runtime.require_devices(device, spec.processes)
    if device == "cpu" and spec.processes > 1:
        runtime.load_on_several_cpus()
    # The others wait while the first samples and judges.
    processes = PartialState(cpu=device == "cpu", timeout=together.PATIENCE)
    if processes.num_processes != spec.processes:
        raise UsageError(f"{processes.num_processes} processes were launched, the spec says {spec.processes}")
    return processes


def _silent(line: str) -> None:
    """The log of every process but the first."""


def make_job(
    spec: GrpoSpec, method: Method, found: questions.Questions, sampling: Sampling, journal: Journal,
    report: Callable[..., Any], log: Say,
) -> GrpoJob:  # fmt: skip
    """Join sampler, reward and trainer."""

    def judged(step: dict[str, Any]) -> None:
        sampling.rest()
        journal.rollout(step)

    reward = method.reward(sampling, judged)
    rollout = shared_rollout(sampling.rollout(found.add_special_tokens), sampling.make_room)
    return GrpoJob(
        spec,
        sampling.device,
        sampling.tokenizer,
        found,
        rollout,
        SharedReward(reward),
        journal,
        report,
        log,
        sampling.release,
        sampling.parts,
    )


def run_as_program(module: str, kind: type[S], train: Callable[..., None], arguments: Sequence[str]) -> int:
    """Exit status 0 when the adapter is written; see `runtime.run_program` for failures."""
    try:
        if len(arguments) != 1:
            raise UsageError(f"give one argument, the spec: python -m {module} SPEC.json")
        spec = kind.load(Path(arguments[0]))
    except UsageError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return error.exit_code
    runtime.prepare_process(spec.threads, tracked=spec.tracking is not None)
    return runtime.run_program(spec.work, lambda: train(spec, report, runtime.say))
