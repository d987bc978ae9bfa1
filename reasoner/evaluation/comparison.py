"""Two models on the same problems: who is better, by how much, and on which problems.

One sample a problem: McNemar's exact test, the interval by Agresti and Min. Several: the paired cluster bootstrap over
problems. p is adjusted by Holm over the data sets. An unscored problem is left out of both sides and counted.
"""

from dataclasses import dataclass, replace
from typing import Literal

from reasoner.errors import DataError
from reasoner.evaluation.answered import Answered, Answers
from reasoner.evaluation.matching import Pairs, named_alike, paired
from reasoner.records import Record
from reasoner.statistics import (
    holm,
    mcnemar_exact,
    minimal_difference,
    minimal_mean_difference,
    paired_interval,
)
from reasoner.statistics.bootstrap import cluster_test

POWER = 0.8
EXCERPT = 90


@dataclass(frozen=True, slots=True)
class Flip(Record):
    """A problem on which the two differ. `a` and `b` are the shares of right samples."""

    problem_id: str
    text: str
    gold: str
    a: float
    b: float
    answer_a: str | None
    answer_b: str | None


@dataclass(frozen=True, slots=True)
class SetComparison(Record):
    """B against A on one data set. Differences are shares, B − A; the words say points."""

    dataset: str
    n: int
    excluded: int
    """Problems without a scored sample on one side."""
    samples: int
    """Most samples of a problem on either side."""
    test: Literal["mcnemar", "cluster bootstrap"]
    accuracy_a: float
    accuracy_b: float
    difference: float
    low: float | None
    high: float | None
    confidence: float
    p: float
    p_holm: float
    minimal_difference: float | None
    """What this many problems, flipping as these do, would show in four cases of five."""
    gained: tuple[Flip, ...]
    """Problems on which B is better, the largest changes first."""
    lost: tuple[Flip, ...]


@dataclass(frozen=True, slots=True)
class Comparison(Record):
    """B against A on every data set that both have."""

    a: str
    b: str
    sets: tuple[SetComparison, ...]
    only_a: tuple[str, ...]
    """Data sets that B has no answers to."""
    only_b: tuple[str, ...]


def compare(
    a: Answered,
    b: Answered,
    *,
    shared: bool = False,
    confidence: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compare `b` with `a`, set by set.

    Raises DataError where they have no data set in common, or other problems in one (`shared` compares those that
    both have).
    """
    sets_a, sets_b = named_alike(a, b)
    common = [name for name in sets_a if name in sets_b]
    if not common:
        raise DataError(
            f"{a.name} and {b.name} have no data set in common ({', '.join(sets_a)} and {', '.join(sets_b)}); "
            "evaluate both on the same one"
        )
    found = []
    for name in common:
        pairs = paired(name, a.name, b.name, sets_a[name], sets_b[name], shared)
        found.append(_compare_set(name, pairs, confidence, resamples, seed))
    adjusted = holm([one.p for one in found])
    return Comparison(
        a.name,
        b.name,
        tuple(replace(one, p_holm=p) for one, p in zip(found, adjusted, strict=True)),
        tuple(name for name in sets_a if name not in sets_b),
        tuple(name for name in sets_b if name not in sets_a),
    )


def _compare_set(name: str, pairs: Pairs, confidence: float, resamples: int, seed: int) -> SetComparison:
    scored = [(x, y) for x, y in pairs if x.scores and y.scores]
    if not scored:
        raise DataError(f"{name}: no problem is scored on both sides, so there is nothing to compare")
    n, samples = len(scored), max(max(len(x.scores), len(y.scores)) for x, y in scored)
    flips = sorted(
        (_flip(x, y) for x, y in scored), key=lambda flip: (-abs(flip.b - flip.a), flip.problem_id)
    )
    gained = tuple(flip for flip in flips if flip.b > flip.a)
    lost = tuple(flip for flip in flips if flip.b < flip.a)
    if samples == 1:
        p = mcnemar_exact(len(lost), len(gained))
        low, high = paired_interval(len(gained), len(lost), n, confidence)
        bounds: tuple[float | None, float | None] = (low, high)
        smallest = minimal_difference(n, (len(gained) + len(lost)) / n, POWER, 1 - confidence)
    else:
        options = {"confidence": confidence, "resamples": resamples, "seed": seed}
        test = cluster_test([x.scores for x, _ in scored], [y.scores for _, y in scored], **options)  # type: ignore[arg-type]
        bounds, p = (test.low, test.high), 1.0 if test.p is None else test.p
        error = test.standard_error
        smallest = minimal_mean_difference(error, POWER, 1 - confidence) if error else None
    accuracy_a, accuracy_b = (sum(one.mean for one in side) / n for side in zip(*scored, strict=True))
    return SetComparison(
        dataset=name, n=n, excluded=len(pairs) - n, samples=samples,
        test="mcnemar" if samples == 1 else "cluster bootstrap", accuracy_a=accuracy_a, accuracy_b=accuracy_b,
        difference=accuracy_b - accuracy_a, low=bounds[0], high=bounds[1], confidence=confidence, p=p, p_holm=p,
        minimal_difference=smallest, gained=gained, lost=lost,
    )  # fmt: skip


def _flip(a: Answers, b: Answers) -> Flip:
    text, gold = a.question or b.question, a.gold or b.gold
    line = " ".join(text.split())
    short = line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"
    return Flip(a.problem_id, short, gold, a.mean, b.mean, a.answers[0], b.answers[0])
