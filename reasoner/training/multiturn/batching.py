"""Micro-batches and optimiser steps: in which pieces rows are computed."""

from collections.abc import Iterator, Sequence
from random import Random
from typing import TypeVar

T = TypeVar("T")


def pieces(rows: Sequence[int], lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """`rows` in micro-batches of `size`, rows of like length together, the longest first (memory shows at once)."""
    order = sorted(rows, key=lambda i: (-lengths[i], i))
    for start in range(0, len(order), size):
        yield order[start : start + size]


def steps(count: int, size: int | None, seed: int) -> list[list[int]]:
    """The rows of each optimiser step: all of them in one, or shuffled into steps of about `size`, of equal size but
    for one row."""
    rows = list(range(count))
    if size is None or size >= count:
        return [rows]
    Random(seed).shuffle(rows)
    number = -(-count // size)
    return [rows[i::number] for i in range(number)]
