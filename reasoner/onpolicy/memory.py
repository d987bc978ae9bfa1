"""Micro-batches: in which pieces rows are computed. Out of memory: smaller pieces, the effective batch as it is."""

from collections.abc import Callable, Sequence
from typing import Any

from reasoner.errors import TrainingError

WITHOUT_GRADIENT = 4
"""A pass without a gradient keeps no activations, so its pieces may have so many times as many tokens."""


class MicroBatches:
    """The micro-batch that fits, found once and kept: `size` rows, or, with `tokens`, as many rows as fit in so many
    tokens, padding counted (rows × longest row), and one at least.

    `accumulate` calls `compute(rows, share)` for pieces of a step's rows; `share` is the piece's part of the step's
    rows, by which a mean loss must be scaled. Gradients of a failed piece may be half there, so a step that runs out of
    memory is begun anew after `reset()`: the sum of its gradients does not depend on the pieces, up to rounding.
    """

    def __init__(self, size: int, log: Callable[[str], None] = print, tokens: int | None = None) -> None:
        if size < 1 or (tokens is not None and tokens < 1):
            raise TrainingError(f"a micro-batch of {size} rows or {tokens} tokens; at least 1 is needed")
        self.size = size
        self.tokens = tokens
        self.tokens_without_gradient = tokens and WITHOUT_GRADIENT * tokens
        """A pass without a gradient that does not fit says nothing of one with, so that it is halved apart."""
        self.halvings = 0
        self._log = log

    def pieces(self, rows: Sequence[int], lengths: Sequence[int], gradient: bool = True) -> list[list[int]]:
        """`rows` in their order, cut into micro-batches; `lengths[row]` is a row's length in tokens."""
        room = self.tokens if gradient else self.tokens_without_gradient
        if room is None:
            return [list(rows[i : i + self.size]) for i in range(0, len(rows), self.size)]
        found: list[list[int]] = []
        longest = 0
        for row in rows:
            longest = max(longest, lengths[row])
            if found and (len(found[-1]) + 1) * longest <= room:
                found[-1].append(row)
            else:
                found.append([row])
                longest = lengths[row]
        return found

    def accumulate(
        self,
        rows: Sequence[int],
        lengths: Sequence[int],
        compute: Callable[[Sequence[int], float], Any],
        reset: Callable[[], None],
        *,
        gradient: bool = True,
    ) -> list[Any]:
        """What `compute` returned for each piece. Raises TrainingError where a single row does not fit.

        Without a `gradient` nothing but the results may be kept.
        """
        import torch

        while True:
            pieces = self.pieces(rows, lengths, gradient)
            done: list[Any] = []
            try:
                for piece in pieces:
                    done.append(compute(piece, len(piece) / len(rows)))
                return done
            except torch.OutOfMemoryError as error:
                if all(len(piece) == 1 for piece in pieces):
                    raise TrainingError(
                        "the device runs out of memory with one sequence a micro-step; turn on gradient checkpointing "
                        "or shorten completions"
                    ) from error
            done.clear()
            self._halve(gradient)
            reset()
            if torch.cuda.is_available():
                torch.cuda.empty_cache()

    def _halve(self, gradient: bool) -> None:
        self.halvings += 1
        if self.tokens is None or self.tokens_without_gradient is None:
            self.size = max(1, self.size // 2)
            now = f"{self.size}"
        elif gradient:
            self.tokens = max(1, self.tokens // 2)
            now = f"of {self.tokens} tokens"
        else:
            self.tokens_without_gradient = max(1, self.tokens_without_gradient // 2)
            now = f"of {self.tokens_without_gradient} tokens where there is no gradient"
        self._log(f"out of memory: the micro-batch is now {now}")
