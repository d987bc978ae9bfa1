"""Supervised fine-tuning with LoRA, as a program: `python -m reasoner.training.sft SPEC.json`.

Covers: TRL's SFTTrainer on rows that are tokenised already (nothing is cut or tokenised again), loss on the
completion only, LoRA through `peft_config`, packing where the machine has a kernel for it and batches of like
length elsewhere, resuming from the last complete checkpoint, halving the
micro-batch when the device runs out of memory, export of the adapter with the lowest validation loss (of the
last step without validation rows).

Guarantees: on the CPU, with the same number of threads, a run that was killed and resumed ends with the same
bytes as one that was not. Departs from SMART's code: loss on the completion only, long records dropped.

A base too large for the device is held in 4-bit NF4 while its adapter is trained. Not covered: full fine-tuning.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from reasoner.errors import ModelError, TrainingError, UsageError
from reasoner.hardware import cpu_computes_bf16
from reasoner.ids import canonical, content_hash, file_hash
from reasoner.preflight.room import require_room
from reasoner.preflight.template import require_stop
from reasoner.process.progress import report
from reasoner.tracking import tracked
from reasoner.training import adapter, checkpoints, packing, runtime, zero
from reasoner.training.examples import EncodedSet, Encoder, read_examples
from reasoner.training.micro_batch import Batch, BatchRecord, Memory, train_halving
from reasoner.training.specs import SftSpec
from reasoner.training.trainer import Job

FULL = "one record a micro-step; set train.gradient_checkpointing=true or lower train.max_length"
VERSION = 2
"""Part of the identity of a work folder; raised when the meaning of a checkpoint changes."""


def identity(spec: SftSpec, device: str, attention: packing.Attention) -> str:
    """The hash of all that decides the adapter: rows, base, settings, seed, device, attention, library versions."""
    from importlib.metadata import version

    base: Any = spec.base_fingerprint or [
        [p.name, p.stat().st_size, file_hash(p) if p.suffix == ".json" else ""]
        for p in sorted(spec.base.iterdir())
        if p.is_file()
    ]
    rows = [file_hash(p) if p else "" for p in (spec.train_rows, spec.validation_rows)]
    settings = [
        spec.train,
        spec.seed,
        spec.end_token,
        spec.add_special_tokens,
        device,
        attention,
        # The optimiser's state of a divided model has a form of its own; else any number of processes goes on.
        *(["fsdp"] if spec.divides_model else []),
        # DeepSpeed's is one file a process, which no other number of them can read.
        *([zero.PACKAGE, version(zero.PACKAGE), spec.processes] if zero.divides(spec) else []),
    ]
    libraries = [version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate")]
    return content_hash([VERSION, spec.base_name, base, rows, settings, libraries])


def base_config(spec: SftSpec) -> dict[str, Any]:
    """The base's config.json. Raises `ModelError`."""
    path = spec.base / "config.json"
    if not path.is_file():
        raise ModelError(f"{spec.base} is not a model folder: config.json is missing")
    config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return config


def encode_rows(spec: SftSpec, encoder: Encoder) -> tuple[EncodedSet, EncodedSet | None]:
    """Training and validation rows as tokens. Raises `TrainingError` when too few are left."""
    positions = base_config(spec).get("max_position_embeddings")
    limit = min(spec.train.max_length, positions) if isinstance(positions, int) else spec.train.max_length
    train = encoder.encode_all(read_examples(spec.train_rows), limit)
    need = spec.train.min_records
    if len(train.kept) < need:
        raise TrainingError(
            f"{len(train.kept)} of {train.given} training records are left ({train.too_long} are longer than "
            f"{limit} tokens); {need} are needed (train.min_records)"
        )
    if spec.validation_rows is None:
        return train, None
    validation = encoder.encode_all(read_examples(spec.validation_rows), limit)
    if validation.given and not validation.kept:
        raise TrainingError(f"All {validation.given} validation records are longer than {limit} tokens")
    return train, validation if validation.kept else None


def losses(history: list[dict[str, Any]], every: int) -> list[dict[str, float]]:
    """The mean training loss of each window of `every` steps, under the window's last step."""
    steps = [(int(row["step"]), float(row["loss"])) for row in history if "loss" in row]
    windows = [steps[i : i + every] for i in range(0, len(steps), every)]
    return [{"step": w[-1][0], "loss": sum(loss for _, loss in w) / len(w)} for w in windows]


def training_record(job: Job, record: BatchRecord, last: Path, chosen: Path) -> dict[str, Any]:
    """What training.json says. No times and no paths: the file counts for the adapter's digest."""
    spec, state = job.spec, checkpoints.state_of(last)
    history: Any = state["log_history"]
    modules = sorted(json.loads((last / adapter.CONFIG).read_text(encoding="utf-8"))["target_modules"])
    return {
        "schema": 1,
        "base": {"name": spec.base_name, "fingerprint": spec.base_fingerprint},
        "seed": spec.seed,
        "end_token": spec.end_token,
        "train": canonical(spec.train),
        "records": job.train.counts(),
        "validation_records": job.validation.counts() if job.validation else None,
        "modules": modules,
        "modules_absent": sorted(set(spec.train.lora.modules) - set(modules)),
        "batch": canonical(record.batch),
        **({"processes": spec.processes, "sharding": spec.sharding} if spec.processes > 1 else {}),
        "packing": packing_facts(job),
        "quantised": "nf4" if job.nf4 else None,
        "halvings": record.halvings,
        "batch_remembered": record.remembered,
        "steps": state["global_step"],
        "losses": losses(history, spec.train.logging_steps),
        "validation_losses": [
            {"step": row["step"], "loss": row["eval_loss"]} for row in history if "eval_loss" in row
        ],
        "exported_step": checkpoints.step_of(chosen),
    }


def in_nf4(spec: SftSpec) -> bool:
    """Whether the base's weights take more in bfloat16 than `train.nf4_above_gib`."""
    limit = spec.train.nf4_above_gib
    return limit is not None and 2 * runtime.count_weights(spec.base) > limit * 2**30


def memory_of(job: Job) -> Memory:
    """Where the micro-batch that fits is remembered: by all that decides how much memory a record takes."""
    spec, train = job.spec, job.spec.train
    kind = {
        "model": spec.base_name,
        "fingerprint": spec.base_fingerprint,
        "device": runtime.device_name(job.device),
        "max_length": train.max_length,
        "precision": train.precision,
        "gradient_checkpointing": train.gradient_checkpointing,
        "lora": canonical(train.lora),
        "packed": job.attention.packed,
        "nf4": job.nf4,
        "processes": spec.processes,
    }
    return Memory(spec.sizes, kind)


def packing_facts(job: Job) -> dict[str, Any]:
    """How records were laid into batches, for training.json."""
    packed = job.attention.packed
    return {
        "packed": packed,
        "attention": job.attention.name,
        "order": "random" if packed or job.spec.train.packing == "off" else "by length",
    }


def announce(job: Job, batch: Batch, log: Callable[[str], None]) -> None:
    """Say what will be done, and which settings have no effect in a run this short."""
    train, steps = job.spec.train, job.steps(batch)
    counts = job.train.counts()
    among = f"{job.spec.processes} processes × " if job.spec.processes > 1 else ""
    log(
        f"{counts['kept']} records ({counts['too_long']} too long), {steps} steps of {among}"
        f"{batch.size} × {batch.accum}, {train.precision} on {job.device}{', the base in 4 bits' if job.nf4 else ''}"
    )
    if job.validation is not None and steps < train.eval_steps:
        log(f"{steps} steps are fewer than eval_steps {train.eval_steps}: one validation, at the end")
    if train.warmup_steps >= steps and train.scheduler != "constant":
        log(f"warm-up lasts {train.warmup_steps} of {steps} steps: the full lr is never reached")
    if train.precision == "bf16" and job.device == "cpu" and not cpu_computes_bf16():
        log("this CPU has no bfloat16 instructions: train.precision=fp32 is several times faster here")


def with_precision(spec: SftSpec, device: str) -> SftSpec:
    """`auto` settled: bfloat16 autocast on an accelerator, float32 on a CPU, where it was never slower."""
    if spec.train.precision != "auto":
        return spec
    precision = "bf16" if device == "cuda" else "fp32"
    return replace(spec, train=spec.train.model_copy(update={"precision": precision}))


def train(spec: SftSpec, report: Callable[..., Any], log: Callable[[str], None]) -> None:
    """Train `spec` to the end and export the adapter. Raises the errors of `reasoner.errors`."""
    from accelerate import PartialState

    started = time.monotonic()
    if spec.train.compile and spec.processes > 1 and spec.sharding != "ddp":
        raise UsageError(
            f"train.compile=true is not for compute.sharding={spec.sharding}; set compute.sharding=ddp"
        )
    zero.require(spec)
    device = runtime.pick_device(spec.device)
    if zero.divides(spec):
        zero.prepare(device)
    runtime.require_devices(device, spec.processes)
    if device == "cpu" and spec.processes > 1:
        runtime.load_on_several_cpus()
    spec = with_precision(spec, device)
    attention = packing.choose(spec.train.packing, device, spec.train.precision, base_config(spec), log)
    tokenizer = runtime.load_tokenizer(spec.base)
    encoder = Encoder(tokenizer, spec.end_token, add_special_tokens=spec.add_special_tokens)
    require_stop(spec.base_name, spec.end_token, encoder.end_id, runtime.stop_ids(spec.base, tokenizer))
    processes = PartialState(cpu=device == "cpu")
    if processes.num_processes != spec.processes:
        raise UsageError(f"{processes.num_processes} processes were launched, the spec says {spec.processes}")
    if processes.is_main_process:
        adapter.require_empty(spec.output)
    else:
        log = _silent
    with processes.main_process_first():
        resume = checkpoints.open_work(spec.work, identity(spec, device, attention), log)
    training, validation = encode_rows(spec, encoder)
    job = Job(spec, device, attention, in_nf4(spec), encoder, training, validation, report, log)
    require_room(
        base_config(spec), spec.train, longest=training.counts()["longest"], nf4=job.nf4,
        device_bytes=runtime.free_memory(device), folder=spec.work,
    )  # fmt: skip
    asked = Batch(spec.train.batch_size, spec.train.grad_accum).shared_by(spec.processes)
    with processes.main_process_first():
        record = BatchRecord(spec.work, asked, memory_of(job), fresh=resume is None)
    announce(job, record.batch, log)
    record.announce(log)
    if resume is not None:
        log(f"going on from step {checkpoints.step_of(resume)}")
    with tracked(spec.tracking if processes.is_main_process else None, log) as shown:
        job.tracked = shown.on
        train_halving(job, record, resume, FULL)
    processes.wait_for_everyone()
    if processes.is_main_process:
        publish(job, record)
        record.keep()
        done = checkpoints.step_of(resume) if resume else 0
        seconds = round(time.monotonic() - started, 3)
        metrics = {"resumed_from_step": done, "seconds": seconds, **runtime.peak_memory(device)}
        checkpoints.write_json(spec.work / runtime.METRICS_FILE, metrics)


def _silent(line: str) -> None:
    """The log of every process but the first."""


def publish(job: Job, record: BatchRecord) -> None:
    """Export the adapter of the best checkpoint, or of the last one without validation."""
    work = job.spec.work
    last = checkpoints.last_complete(work)
    if last is None or checkpoints.step_of(last) < job.steps(record.batch):
        raise TrainingError(f"The training left no complete last checkpoint in {work}; run it again")
    best = checkpoints.best_step(last)
    chosen = last if best is None else work / f"checkpoint-{best}"
    # A tokenizer of its own: the Trainer sets a padding token on the one that it is given.
    tokenizer = runtime.load_tokenizer(job.spec.base)
    facts = training_record(job, record, last, chosen)
    adapter.export_adapter(chosen, job.spec.output, tokenizer, job.spec.base_name, facts)
    job.log(f"adapter of step {facts['exported_step']} written")


def main(arguments: list[str]) -> int:
    """Exit status 0 when the adapter is written; see `runtime.run_program` for failures."""
    return runtime.run_main(arguments, SftSpec, lambda spec: train(spec, report, runtime.say))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
