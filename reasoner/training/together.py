"""How the processes of one training meet where one of them has long work to do for all, such as sampling.

NCCL waits in a kernel on the card, which keeps running until the others come. An engine on the same card is another
process, and the two take turns: beside a trainer that waits it has the card for a part of the time only. So these wait
on the processor, by gloo, whatever the tensors of the training go through.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import cache
from itertools import accumulate
from typing import Any

PATIENCE = timedelta(hours=6)
"""How long the others wait while the first samples and judges."""


def wait() -> None:
    """Come back when every process has called it. Nothing happens where there is only one."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.barrier(group=_group(dist.group.WORLD))


def by_first(work: Callable[[list[Any]], Sequence[Any]], rows: Sequence[Any]) -> list[Any]:
    """`work` on the rows of all processes, done in the first; it returns a result a row, and each gets its own."""
    import torch.distributed as dist

    if not dist.is_initialized() or dist.get_world_size() == 1:
        return list(work(list(rows)))
    group, first = _group(dist.group.WORLD), dist.get_rank() == 0
    given: list[Any] | None = [None] * dist.get_world_size() if first else None
    dist.gather_object(list(rows), given, group=group)
    shares = _shares(work, given) if given is not None else None
    own: list[Any] = [None]
    dist.scatter_object_list(own, shares, src=0, group=group)
    return list(own[0])


def _shares(work: Callable[[list[Any]], Sequence[Any]], given: Sequence[list[Any]]) -> list[list[Any]]:
    """The results of each process's rows. ValueError where there is not one a row."""
    everyone = [row for rows in given for row in rows]
    results = work(everyone)
    if len(results) != len(everyone):
        raise ValueError(f"{len(everyone)} rows of all processes gave {len(results)} results")
    ends = list(accumulate(map(len, given)))
    return [list(results[end - len(rows) : end]) for rows, end in zip(given, ends, strict=True)]


@cache
def _group(world: Any) -> Any:
    """The processes of `world`, meeting on the processor. All must ask for it at the same time."""
    import torch.distributed as dist

    return dist.new_group(backend="gloo", timeout=PATIENCE)
