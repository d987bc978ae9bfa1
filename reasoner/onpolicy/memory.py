"""Out of memory: try again with smaller pieces, keep groups and the effective batch as they are."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from reasoner.errors import TrainingError

Row = TypeVar("Row")


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
