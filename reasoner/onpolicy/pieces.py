"""Rows into pieces that fit the device, and values between rows and padded tensors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reasoner.onpolicy.logprobs import TokenBatch


def cut(lengths: Mapping[int, int], tokens: int) -> Iterator[list[int]]:
    """Row numbers in pieces of at most `tokens` padded tokens (or one row), longest rows first.

    The longest first, so that a piece's width is its first row's length and little of it is padding.
    """
    order = sorted(lengths, key=lambda i: (-lengths[i], i))
    while order:
        count = max(1, tokens // max(1, lengths[order[0]]))
        yield order[:count]
        order = order[count:]


def by_row(values_BT: Any, batch: TokenBatch, rows: Sequence[int]) -> dict[int, Any]:
    """Each row's values [T] on the CPU, without padding, under its number."""
    values, counts = values_BT.cpu(), batch.mask.sum(dim=1).tolist()
    return {i: values[place, : counts[place]] for place, i in enumerate(rows)}


def padded(rows: Sequence[Any], width: int, device: Any) -> Any:
    """[B, width] float32 of rows of numbers (lists or tensors), 0 on the right."""
    import torch

    out = torch.zeros(len(rows), width)
    for place, row in enumerate(rows):
        out[place, : len(row)] = torch.as_tensor(row, dtype=torch.float32)
    return out.to(device)
