"""Self-correction metrics of two turns over the same questions (METHODS 1.4)."""

from collections.abc import Iterable
from dataclasses import dataclass

from reasoner.errors import DataError, ReasonerError
from reasoner.methods.smart.attempts import Attempt, one_each
from reasoner.methods.smart.measured import Measured
from reasoner.statistics import Estimate, estimate


@dataclass(frozen=True, slots=True)
class SelfCorrection(Measured):
    """Two turns on the same N questions; turn 2 is run for all, without an oracle.

    Delta = acc@t2 - acc@t1 = delta_i_to_c - delta_c_to_i.
    """

    n: int
    """Questions that are scored at both turns."""
    excluded: int
    """Questions that are unscored at either."""
    acc_t1: Estimate
    acc_t2: Estimate
    delta: float
    i_to_c: int
    """Wrong, then right."""
    c_to_i: int
    """Right, then wrong."""
    delta_i_to_c: float
    delta_c_to_i: float
    repeated: Estimate
    """Turn-2 responses that use a strategy named as tried, of all turn-2 responses where one was."""
    retried: int
    """Questions whose first answer was unusable: no strategy named, or no answer to be had from it."""
    acc_t2_fallback: Estimate
    """The second answer only where the first was unusable, which no gold is needed to see."""
    acc_t2_oracle: Estimate
    """Right at either turn, as if only wrong answers were retried. Never below acc@t1 by construction, so
    it is comparable with the paper's refinement figure and with nothing else."""


def self_correction(
    turn1: Iterable[Attempt], turn2: Iterable[Attempt], *, confidence: float = 0.95
) -> SelfCorrection:
    """Measure two turns. Raises DataError unless both hold one attempt at each of the same questions."""
    first, second = one_each(turn1, "turn 1"), one_each(turn2, "turn 2")
    if first.keys() != second.keys():
        differing = len(first.keys() ^ second.keys())
        raise DataError(
            f"turn 1 has {len(first)} problems and turn 2 has {len(second)}; {differing} are in one only. "
            "Run turn 2 for every problem, right or wrong"
        )
    pairs = [(a.right, second[i].right) for i, a in first.items() if a.scored and second[i].scored]
    n = len(pairs)
    k1, k2 = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    i_to_c, c_to_i = sum(b and not a for a, b in pairs), sum(a and not b for a, b in pairs)
    if k2 - k1 != i_to_c - c_to_i:
        raise ReasonerError(f"self-correction counts disagree: {k2} - {k1} is not {i_to_c} - {c_to_i}")
    told = [a for a in second.values() if a.tried]
    unusable = {i for i, a in first.items() if a.strategy is None or a.verdict.extracted is None}
    kept = [
        second[i].right if i in unusable else a.right
        for i, a in first.items()
        if a.scored and second[i].scored
    ]
    return SelfCorrection(
        n=n,
        excluded=len(first) - n,
        acc_t1=estimate(k1, n, confidence),
        acc_t2=estimate(k2, n, confidence),
        delta=_share(k2 - k1, n),
        i_to_c=i_to_c,
        c_to_i=c_to_i,
        delta_i_to_c=_share(i_to_c, n),
        delta_c_to_i=_share(c_to_i, n),
        repeated=estimate(sum(a.strategy in a.tried for a in told), len(told), confidence),
        retried=len(unusable),
        acc_t2_fallback=estimate(sum(kept), n, confidence),
        acc_t2_oracle=estimate(sum(a or b for a, b in pairs), n, confidence),
    )


def _share(count: int, n: int) -> float:
    return count / n if n else 0.0
