"""How the effective batch is cut: the micro-batch that fits a device, found by halving and remembered.

Covers: the cut of a running training, kept in its work folder over a crash; a note under the home folder, by model,
device and length, with which the next training of the same kind begins at the size that was found. The effective
batch and the order of the records never change, so a halved training differs by rounding only.

Not covered: growing a micro-batch again (remove the note to try a larger one).
"""

import gc
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from reasoner.config.training import largest_part, share_of
from reasoner.errors import TrainingError
from reasoner.ids import canonical, content_hash
from reasoner.training.checkpoints import last_complete, step_of, write_json

BATCH_FILE = "batch.json"
"""In the work folder: the micro-batch that fits, and the halvings that found it."""


@dataclass(frozen=True)
class Batch:
    """How a process's share of the effective batch is cut: `size` records a micro-step, `accum` micro-steps a step."""

    size: int
    accum: int

    def halved(self) -> "Batch | None":
        """The same effective batch in micro-batches of at most half the size; None for a micro-batch of 1."""
        return self.at_most(self.size // 2) if self.size > 1 else None

    def shared_by(self, processes: int) -> "Batch":
        """The share of each of several processes, in micro-batches of at most this size. Raises ConfigurationError."""
        part = share_of(self.size * self.accum, processes)
        return Batch(1, part).at_most(self.size)

    def at_most(self, limit: int) -> "Batch":
        """The same effective batch in the largest equal micro-batches of at most `limit` records (limit ≥ 1)."""
        whole = self.size * self.accum
        size = largest_part(whole, limit)
        return Batch(size, whole // size)


@dataclass(frozen=True)
class Memory:
    """The notes under `folder`; `kind` holds all that decides how much memory a record takes."""

    folder: Path | None
    kind: Mapping[str, Any]

    @property
    def path(self) -> Path | None:
        """The note of this kind of training."""
        return self.folder / f"{content_hash(dict(self.kind), 16)}.json" if self.folder else None

    def read(self) -> int | None:
        """The micro-batch that fitted last time; None if nothing, or nothing readable, is noted."""
        try:
            noted = json.loads(self.path.read_text(encoding="utf-8"))["micro_batch"] if self.path else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return noted if isinstance(noted, int) and not isinstance(noted, bool) and noted >= 1 else None

    def write(self, size: int) -> None:
        """Note that `size` records fit."""
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, {"micro_batch": size, **canonical(dict(self.kind))})


class BatchRecord:
    """The micro-batch of a work folder and its halvings, kept over a crash."""

    def __init__(self, work: Path, asked: Batch, memory: Memory, *, fresh: bool) -> None:
        """With `fresh`, begins at `asked`, or at the remembered size if that is smaller; else goes on."""
        self.path, self.memory = work / BATCH_FILE, memory
        self.batch, self.remembered, self.halvings = asked, False, list[dict[str, int]]()
        if fresh:
            known = memory.read()
            if known is not None and known < asked.size:
                self.batch, self.remembered = asked.at_most(known), True
            self._save()
        elif self.path.is_file():
            self._load()

    def halve(self, step: int) -> bool:
        """Take the next smaller micro-batch and write it down; False if there is none."""
        smaller = self.batch.halved()
        if smaller is None:
            return False
        self.batch = smaller
        self.halvings.append({"step": step, "batch_size": smaller.size, "grad_accum": smaller.accum})
        self._save()
        return True

    def keep(self) -> None:
        """After a whole training: remember the size for the next one, if it had to be searched."""
        if self.halvings:
            self.memory.write(self.batch.size)

    def announce(self, log: Callable[[str], None]) -> None:
        """Say that the micro-batch is not the one asked for, and how to have it again."""
        if self.remembered:
            log(
                f"micro-batch {self.batch.size}, which fitted this device before; "
                f"remove {self.memory.path} to try a larger one"
            )

    def _save(self) -> None:
        facts = {"batch": self.batch, "halvings": self.halvings, "remembered": self.remembered}
        write_json(self.path, canonical(facts))

    def _load(self) -> None:
        try:
            known = json.loads(self.path.read_text(encoding="utf-8"))
            found, self.halvings = Batch(**known["batch"]), known["halvings"]
            # Another number of processes has other shares; what fitted a device fits it still.
            same = found.size * found.accum == self.batch.size * self.batch.accum
            self.batch = found if same else self.batch.at_most(found.size)
            self.remembered = bool(known.get("remembered"))
        except (ValueError, KeyError, TypeError) as error:
            raise TrainingError(
                f"{self.path} is damaged ({error}); remove its folder to start anew"
            ) from error


class Attempts(Protocol):
    """A training of which a new trainer can be made for each cut of the batch."""

    @property
    def device(self) -> str:
        """`cuda` or `cpu`."""

    @property
    def log(self) -> Callable[[str], None]:
        """Takes a line."""

    @property
    def work(self) -> Path:
        """The folder of the checkpoints."""

    def steps(self, batch: Batch) -> int:
        """The optimiser steps of the whole training."""

    def trainer(self, batch: Batch, done: int) -> Any:
        """A new trainer on a freshly loaded base, of which `done` steps are made already."""


def train_halving(job: Attempts, record: BatchRecord, resume: Path | None, advice: str) -> None:
    """Train to the end, halving the micro-batch and going on from the last checkpoint when the device's memory is full.

    The effective batch and the order of the rows stay the same. Raises TrainingError, with `advice`, where a
    micro-batch of one does not fit.
    """
    import torch

    while resume is None or step_of(resume) < job.steps(record.batch):
        trainer = job.trainer(record.batch, step_of(resume) if resume else 0)
        try:
            trainer.train(resume_from_checkpoint=str(resume) if resume else None)
            return
        except torch.OutOfMemoryError as error:
            step = trainer.state.global_step
            if not record.halve(step):
                raise TrainingError(f"The device runs out of memory with {advice}") from error
        job.log(f"out of memory at step {step}: the micro-batch is now {record.batch.size}")
        del trainer  # its tensors must go before the next attempt loads the base
        gc.collect()
        if job.device == "cuda":
            torch.cuda.empty_cache()
        resume = last_complete(job.work)
