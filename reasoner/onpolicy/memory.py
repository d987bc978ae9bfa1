"""Out of memory: try again with smaller pieces, keep groups and the effective batch as they are.

Three cuts for three loops: `MicroBatches` by rows, `PieceSize` by padded tokens, `train_healing` for TRL's trainers.
The smaller size is kept.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from reasoner.errors import TrainingError
from reasoner.training.trainer import Batch

Row = TypeVar("Row")
T = TypeVar("T")


class MicroBatches:
    """The micro-batch that fits, found once and kept.

    `accumulate` calls `backward(rows, share)` for pieces of a step's rows; `share` is the piece's part of the step's
    rows, by which a mean loss must be scaled. Gradients of a failed piece may be half there, so a step that runs out of
    memory is begun anew after `reset()`: the sum of its gradients does not depend on the pieces, up to rounding.
    """

    def __init__(self, size: int, log: Callable[[str], None] = print) -> None:
        if size < 1:
            raise TrainingError(f"a micro-batch of {size} rows; at least 1 is needed")
        self.size = size
        self.halvings = 0
        self._log = log

    def accumulate(
        self,
        rows: Sequence[Row],
        backward: Callable[[Sequence[Row], float], Any],
        reset: Callable[[], None],
    ) -> list[Any]:
        """What `backward` returned for each piece. Raises TrainingError where a single row does not fit."""
        import torch

        while True:
            try:
                return [
                    backward(piece, len(piece) / len(rows))
                    for piece in (rows[i : i + self.size] for i in range(0, len(rows), self.size))
                ]
            except torch.OutOfMemoryError as error:
                if self.size == 1:
                    raise TrainingError(
                        "the device runs out of memory with one sequence a micro-step; turn on gradient checkpointing "
                        "or shorten completions"
                    ) from error
            self.size = max(1, self.size // 2)
            self.halvings += 1
            reset()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            self._log(f"out of memory: the micro-batch is now {self.size}")


class OutOfMemory(Exception):
    """The device's memory was full; raised by `memory_errors` in place of what torch raises."""


@contextmanager
def memory_errors() -> Iterator[None]:
    """Make one exception of the ways in which torch says that memory is full."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(_line(error)) from error
    except RuntimeError as error:
        if "not enough memory" in str(error) or "can't allocate memory" in str(error):
            raise OutOfMemory(_line(error)) from error
        raise


def free_memory() -> None:
    """Give back what a failed attempt left. Call it outside the `except` block, which holds the frames."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class PieceSize:
    """How many padded tokens are computed at once; halved at each full device, down to one row."""

    def __init__(self, tokens: int, log: Callable[[str], None] = print) -> None:
        self.tokens = tokens
        self.halvings = 0
        self._log = log

    def heal(self, attempt: Callable[[], T], widest: int, undo: Callable[[], None]) -> T:
        """Run `attempt`, which reads `tokens`, until it fits; `undo` removes what a failed one left.

        `widest` is the longest row: below it nothing can shrink. Raises TrainingError then.
        """
        while True:
            trouble = ""
            try:
                with memory_errors():
                    return attempt()
            except OutOfMemory as error:
                trouble = str(error)
            undo()
            free_memory()
            if self.tokens < widest:
                raise TrainingError(
                    f"The device runs out of memory with one row of {widest} tokens ({trouble}); turn gradient "
                    "checkpointing on or lower the completion limit"
                )
            self.tokens //= 2
            self.halvings += 1
            self._log(f"out of memory: {self.tokens} tokens at once from now on; the batch stays whole")


class Attempt(Protocol):
    """A trainer for one cut of the batch."""

    def train(self, *, resume_from_checkpoint: str | None = None) -> Any: ...


def train_healing(
    make: Callable[[Batch], Attempt],
    batch: Batch,
    last_checkpoint: Callable[[], str | None],
    log: Callable[[str], None] = print,
) -> tuple[Attempt, Batch]:
    """Train with TRL's trainer; at a full device halve the micro-batch and go on from the last checkpoint.

    `make(batch)` builds a trainer with `per_device_train_batch_size=batch.size` and both
    `gradient_accumulation_steps` and `steps_per_generation` `batch.accum`, so that size × accum, and with it the
    generation batch and its groups, stay the same. Raises TrainingError when one row does not fit.
    """
    while True:
        trainer = make(batch)
        trouble = ""
        try:
            with memory_errors():
                trainer.train(resume_from_checkpoint=last_checkpoint())
                return trainer, batch
        except OutOfMemory as error:
            trouble = str(error)
        del trainer
        free_memory()
        smaller = batch.halved()
        if smaller is None:
            raise TrainingError(
                f"The device runs out of memory with one row a micro-step ({trouble}); turn gradient checkpointing "
                "on or lower the completion limit"
            )
        batch = smaller
        log(f"out of memory: the micro-batch is now {batch.size}, the effective batch stays")


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
