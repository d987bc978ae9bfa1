"""What several samples of one problem say together."""

from collections import Counter
from collections.abc import Hashable, Iterable
from math import comb
from typing import TypeVar

from reasoner.errors import UsageError

Answer = TypeVar("Answer", bound=Hashable)


def majority(answers: Iterable[Answer | None]) -> Answer | None:
    """The most frequent answer; of equally frequent ones the one that came first. None is no answer.

    Source: self-consistency, Wang et al., arXiv 2203.11171.
    """
    counts = Counter(answer for answer in answers if answer is not None)
    return counts.most_common(1)[0][0] if counts else None


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased estimate of the chance that one of `k` samples is correct, from `c` correct of `n`.

    1 - C(n - c, k) / C(n, k). Source: Chen et al., arXiv 2107.03374, equation 1. Raises UsageError unless
    0 <= c <= n and 1 <= k <= n.
    """
    if not 0 <= c <= n:
        raise UsageError(f"{c} correct of {n} samples cannot be")
    if not 1 <= k <= n:
        raise UsageError(f"pass@{k} needs at least {k} samples, and there are {n}; draw more or lower k")
    return 1.0 - comb(n - c, k) / comb(n, k)
