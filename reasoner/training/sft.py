"""Supervised fine-tuning with LoRA, as a program: `python -m reasoner.training.sft SPEC.json`.

Covers: TRL's SFTTrainer on rows that are tokenised already (nothing is cut or tokenised again), loss on the
completion only, LoRA through `peft_config`, resuming from the last complete checkpoint, halving the
micro-batch when the device runs out of memory, export of the adapter with the lowest validation loss (of the
last step without validation rows).

Guarantees: on the CPU, with the same number of threads, a run that was killed and resumed ends with the same
bytes as one that was not. Departs from SMART's code: loss on the completion only, long records dropped.

Not covered: packing, quantised bases, full fine-tuning.
"""

import gc
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
from reasoner.process.progress import report
from reasoner.training import adapter, checkpoints, runtime
from reasoner.training.examples import EncodedSet, Encoder, read_examples
from reasoner.training.specs import SftSpec
from reasoner.training.trainer import Batch, Job

VERSION = 1
"""Part of the identity of a work folder; raised when the meaning of a checkpoint changes."""

BATCH_FILE = "batch.json"
"""In the work folder: the micro-batch that fits, and the halvings that found it."""


def identity(spec: SftSpec, device: str) -> str:
    """The hash of all that decides the adapter: rows, base, settings, seed, device, library versions."""
    from importlib.metadata import version

    base: Any = spec.base_fingerprint or [
        [p.name, p.stat().st_size, file_hash(p) if p.suffix == ".json" else ""]
        for p in sorted(spec.base.iterdir())
        if p.is_file()
    ]
    rows = [file_hash(p) if p else "" for p in (spec.train_rows, spec.validation_rows)]
    settings = [spec.train, spec.seed, spec.end_token, spec.add_special_tokens, spec.processes, device]
    libraries = [version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate")]
    return content_hash([VERSION, spec.base_name, base, rows, settings, libraries])


def encode_rows(spec: SftSpec, encoder: Encoder) -> tuple[EncodedSet, EncodedSet | None]:
    """Training and validation rows as tokens. Raises `TrainingError` when too few are left."""
    config = json.loads((spec.base / "config.json").read_text(encoding="utf-8"))
    positions = config.get("max_position_embeddings")
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


class BatchRecord:
    """The micro-batch of a work folder and its halvings, kept over a crash."""

    def __init__(self, spec: SftSpec, fresh: bool) -> None:
        self.path = spec.work / BATCH_FILE
        self.batch = Batch(spec.train.batch_size, spec.train.grad_accum)
        self.halvings: list[dict[str, int]] = []
        if fresh:
            self.path.unlink(missing_ok=True)
        elif self.path.is_file():
            known = json.loads(self.path.read_text(encoding="utf-8"))
            self.batch, self.halvings = Batch(**known["batch"]), known["halvings"]

    def halve(self, step: int) -> bool:
        """Take the next smaller micro-batch and write it down; False if there is none."""
        smaller = self.batch.halved()
        if smaller is None:
            return False
        self.batch = smaller
        self.halvings.append({"step": step, "batch_size": smaller.size, "grad_accum": smaller.accum})
        checkpoints.write_json(self.path, {"batch": canonical(smaller), "halvings": self.halvings})
        return True


def train_to_end(job: Job, record: BatchRecord, resume: Path | None) -> None:
    """Train, halving the micro-batch and going on from the last checkpoint when the device's memory is full.

    The effective batch and the order of the records stay the same, so a halved run differs by rounding only.
    """
    import torch

    while resume is None or checkpoints.step_of(resume) < job.steps(record.batch):
        trainer = job.trainer(record.batch)
        try:
            trainer.train(resume_from_checkpoint=str(resume) if resume else None)
            return
        except torch.OutOfMemoryError as error:
            step = trainer.state.global_step
            if not record.halve(step):
                raise TrainingError(
                    "The device runs out of memory with one record a micro-step; set "
                    "train.gradient_checkpointing=true or lower train.max_length"
                ) from error
        job.log(f"out of memory at step {step}: the micro-batch is now {record.batch.size}")
        del trainer  # its tensors must go before the next attempt loads the base
        gc.collect()
        if job.device == "cuda":
            torch.cuda.empty_cache()
        resume = checkpoints.last_complete(job.spec.work)


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
        "halvings": record.halvings,
        "steps": state["global_step"],
        "losses": losses(history, spec.train.logging_steps),
        "validation_losses": [
            {"step": row["step"], "loss": row["eval_loss"]} for row in history if "eval_loss" in row
        ],
        "exported_step": checkpoints.step_of(chosen),
    }


def announce(job: Job, batch: Batch, log: Callable[[str], None]) -> None:
    """Say what will be done, and which settings have no effect in a run this short."""
    train, steps = job.spec.train, job.steps(batch)
    counts = job.train.counts()
    log(
        f"{counts['kept']} records ({counts['too_long']} too long), {steps} steps of "
        f"{batch.size} × {batch.accum}, {train.precision} on {job.device}"
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
    device = runtime.pick_device(spec.device)
    spec = with_precision(spec, device)
    if not (spec.base / "config.json").is_file():
        raise ModelError(f"{spec.base} is not a model folder: config.json is missing")
    tokenizer = runtime.load_tokenizer(spec.base)
    encoder = Encoder(tokenizer, spec.end_token, add_special_tokens=spec.add_special_tokens)
    if encoder.end_id not in runtime.stop_ids(spec.base, tokenizer):
        raise ModelError(
            f"{spec.base_name} does not stop generating at {spec.end_token!r}: not its end token"
        )
    processes = PartialState(cpu=device == "cpu")
    if processes.num_processes != spec.processes:
        raise UsageError(f"{processes.num_processes} processes were launched, the spec says {spec.processes}")
    if processes.is_main_process:
        adapter.require_empty(spec.output)
    else:
        log = _silent
    with processes.main_process_first():
        resume = checkpoints.open_work(spec.work, identity(spec, device), log)
    training, validation = encode_rows(spec, encoder)
    job = Job(spec, device, encoder, training, validation, report, log)
    record = BatchRecord(spec, fresh=resume is None)
    announce(job, record.batch, log)
    if resume is not None:
        log(f"going on from step {checkpoints.step_of(resume)}")
    train_to_end(job, record, resume)
    processes.wait_for_everyone()
    if processes.is_main_process:
        publish(job, record)
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
