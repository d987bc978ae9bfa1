"""The order in which a training meets its records, a function of seed and epoch alone.

Covers: batches of like length, so that little is padded. Resuming needs no state: the order of an epoch is made
anew from its number. Several processes meet the same records in the same steps as one: the order is filled up
with neutral rows, which have no label and so no part in the loss. Not covered: packed and ungrouped trainings of one
process, whose random order is the Trainer's.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from reasoner.ids import derived_seed


def grouped_order(lengths: Sequence[int], batch: int, seed: int, epoch: int) -> list[int]:
    """Indices of all records, in batches of like length whose order is drawn at random.

    `batch` is the effective batch, so that the records of an optimiser step stay the same however it is cut. Sorted
    batches would go from long to short, over and over: strategies differ in length, so each epoch would end with
    nothing but the shortest one. The batch with the longest record comes first: memory that does not suffice is found
    out at the first step. What fills no batch comes last.
    """
    import torch
    from transformers.trainer_pt_utils import get_length_grouped_indices

    generator = torch.Generator().manual_seed(derived_seed("record order", seed, epoch))
    order = list(get_length_grouped_indices(list(lengths), batch, generator=generator))
    whole = len(order) // batch
    drawn = (1 + torch.randperm(max(0, whole - 1), generator=generator)).tolist()
    batches = [*range(min(1, whole)), *drawn, whole]
    return [i for number in batches for i in order[number * batch : (number + 1) * batch]]


class GroupedSampler:
    """A sampler over `lengths`; the Trainer tells it the epoch through `set_epoch`."""

    def __init__(self, lengths: Sequence[int], batch: int, seed: int) -> None:
        self.lengths, self.batch, self.seed = tuple(lengths), batch, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = int(epoch)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        return iter(grouped_order(self.lengths, self.batch, self.seed, self.epoch))


def random_sampler(rows: int, seed: int) -> Any:
    """The random order that the Trainer of one process takes."""
    import torch
    from accelerate.data_loader import SeedableRandomSampler

    return SeedableRandomSampler(range(rows), generator=torch.Generator(), data_seed=seed)


class FilledSampler:
    """`sampler`'s indices, then those of the rows behind them, up to `rows` in all."""

    def __init__(self, sampler: Any, rows: int) -> None:
        self.sampler, self.rows = sampler, rows

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return self.rows

    def __iter__(self) -> Iterator[int]:
        yield from self.sampler
        yield from range(len(self.sampler), self.rows)
