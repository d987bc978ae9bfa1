"""pass@k and majority@k of judged samples, with intervals over problems."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reasoner.records import Outcome, Record, Verdict
from reasoner.statistics import Estimate, estimate, majority, pass_at_k, wilson
from reasoner.statistics.bootstrap import Difference, paired_difference


@dataclass(frozen=True, slots=True)
class Measured(Record):
    """One model on one data set. `pass_at` and `majority` are over the `n` problems without an unscored sample."""

    n: int
    unscored: int
    """Problems left out."""
    samples: int
    pass_at: dict[str, Difference]
    """By k: the mean of the unbiased estimates; Wilson's interval for one sample, else resampled problems."""
    majority: Estimate | None
    """The most frequent answer of all samples; None for one sample."""
    no_answer: int
    """Samples in which no answer was found."""
    truncated: int
    """Samples cut at the token limit."""


def ks(samples: int) -> list[int]:
    """1, 2, 4, … and the number of samples."""
    powers = [2**i for i in range(samples.bit_length()) if 2**i < samples]
    return [*powers, samples]


def measure(
    verdicts: Mapping[str, Sequence[Verdict]], truncated: int = 0, confidence: float = 0.95, seed: int = 0
) -> Measured:
    """`verdicts` are all samples of each problem, as many of each."""
    whole = {p: vs for p, vs in verdicts.items() if all(v.outcome is not Outcome.UNSCORED for v in vs)}
    samples = max((len(vs) for vs in verdicts.values()), default=0)
    rights = [sum(v.correct for v in vs) for vs in whole.values()]
    return Measured(
        n=len(whole),
        unscored=len(verdicts) - len(whole),
        samples=samples,
        pass_at={str(k): _pass_at(rights, samples, k, confidence, seed) for k in ks(samples)}
        if samples
        else {},
        majority=_majority(list(whole.values()), confidence) if samples > 1 else None,
        no_answer=sum(v.extracted is None for vs in whole.values() for v in vs),
        truncated=truncated,
    )


def _pass_at(rights: Sequence[int], samples: int, k: int, confidence: float, seed: int) -> Difference:
    values = [pass_at_k(samples, right, k) for right in rights]
    if samples == 1 and values:
        low, high = wilson(sum(rights), len(rights), confidence)
        return Difference(len(values), sum(values) / len(values), low, high)
    return paired_difference(values, [0.0] * len(values), confidence=confidence, seed=seed)


def _majority(problems: Sequence[Sequence[Verdict]], confidence: float) -> Estimate:
    right = 0
    for verdicts in problems:
        answer = majority(v.extracted for v in verdicts)
        right += any(v.correct and v.extracted == answer for v in verdicts)
    return estimate(right, len(problems), confidence)
