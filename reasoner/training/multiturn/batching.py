"""The order of rows and the optimiser steps that they are shared out to; `onpolicy.memory` cuts micro-batches."""

from collections.abc import Sequence
from random import Random


def longest_first(rows: Sequence[int], lengths: Sequence[int]) -> list[int]:
    """Rows of like length beside each other; the longest first, so that a lack of memory shows at once."""
    return sorted(rows, key=lambda i: (-lengths[i], i))


def steps(count: int, size: int | None, seed: int) -> list[list[int]]:
    """The rows of each optimiser step: all of them in one, or shuffled into steps of about `size`, of equal size but
    for one row."""
    rows = list(range(count))
    if size is None or size >= count:
        return [rows]
    Random(seed).shuffle(rows)
    number = -(-count // size)
    return [rows[i::number] for i in range(number)]
