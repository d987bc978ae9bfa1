"""What few-shot attempts say before any training (METHODS 2.5): is there anything for a choice to gain?

C(q) are the strategies that solve question q. Everything is measured on the questions where every strategy
has a scored attempt, so that the figures belong together; the others are counted.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from reasoner.methods.smart.attempts import Attempt, few_shot_table, rank
from reasoner.methods.smart.measured import Measured
from reasoner.records import Strategy
from reasoner.statistics import Estimate, estimate, majority

SMALL_HEADROOM = 0.02
"""Below this, choosing cannot be told from noise: at 1319 questions a 95 % interval is wider than ±0.02."""


@dataclass(frozen=True, slots=True)
class Overlap(Measured):
    """Two strategies on the same questions, as counts."""

    first: str
    second: str
    both: int
    only_first: int
    only_second: int
    neither: int
    agreement: float
    """Share of questions that both solve or both fail."""


@dataclass(frozen=True, slots=True)
class Analysis(Measured):
    """Few-shot attempts, counted. Shares are unset (or 0 of 0) where no question could be used."""

    problems: int
    """Questions with a scored attempt of every strategy."""
    incomplete: int
    """Questions left out because an attempt is missing or unscored."""
    unscored: int
    """Unscored attempts."""
    histogram: dict[int, int]
    """Questions by |C|, from 0 to the number of strategies."""
    accuracy: dict[str, Estimate]
    overlaps: tuple[Overlap, ...]
    oracle_any: Estimate
    """P(|C| >= 1): what a perfect choice among these attempts reaches."""
    vote: Estimate
    """Majority over the strategies' answers; a tie goes to the first strategy."""
    best_single: str | None
    """The strategy with the highest accuracy."""
    headroom: float | None
    """oracle_any - best_single: the most that choosing could add."""
    sentence: str


def analyse(
    attempts: Iterable[Attempt], *, confidence: float = 0.95, small: float = SMALL_HEADROOM
) -> Analysis:
    """Analyse few-shot attempts, at most one a question and strategy. Raises DataError for a double one."""
    table = few_shot_table(attempts)
    strategies = sorted({s for row in table.values() for s in row}, key=rank)
    complete = [
        row for row in table.values() if len(row) == len(strategies) and all(a.scored for a in row.values())
    ]
    n = len(complete)
    sizes = Counter(sum(a.right for a in row.values()) for row in complete)
    accuracy = {s.value: estimate(sum(row[s].right for row in complete), n, confidence) for s in strategies}
    oracle = estimate(n - sizes[0], n, confidence)
    best = max(accuracy, key=lambda s: accuracy[s].k) if n else None
    headroom = (oracle.k - accuracy[best].k) / n if best is not None else None
    return Analysis(
        problems=n,
        incomplete=len(table) - n,
        unscored=sum(not a.scored for row in table.values() for a in row.values()),
        histogram={size: sizes[size] for size in range(len(strategies) + 1)},
        accuracy=accuracy,
        overlaps=tuple(_overlap(complete, a, b) for a, b in combinations(strategies, 2)),
        oracle_any=oracle,
        vote=estimate(sum(_vote_is_right(row) for row in complete), n, confidence),
        best_single=best,
        headroom=headroom,
        sentence=_sentence(best, headroom, small),
    )


def contested(attempts: Iterable[Attempt]) -> frozenset[str]:
    """Ids of the problems that some few-shot strategy solves and another, scored too, does not."""
    return frozenset(
        problem_id
        for problem_id, row in few_shot_table(attempts).items()
        if {a.right for a in row.values() if a.scored} == {True, False}
    )


def _overlap(rows: list[dict[Strategy, Attempt]], first: Strategy, second: Strategy) -> Overlap:
    pairs = Counter((row[first].right, row[second].right) for row in rows)
    same = pairs[True, True] + pairs[False, False]
    return Overlap(
        first=first.value,
        second=second.value,
        both=pairs[True, True],
        only_first=pairs[True, False],
        only_second=pairs[False, True],
        neither=pairs[False, False],
        agreement=same / len(rows) if rows else 0.0,
    )


def _vote_is_right(row: dict[Strategy, Attempt]) -> bool:
    answer = majority(attempt.verdict.extracted for attempt in row.values())
    return answer is not None and any(a.right for a in row.values() if a.verdict.extracted == answer)


def _sentence(best: str | None, headroom: float | None, small: float) -> str:
    if best is None or headroom is None:
        return "No question has a scored attempt of every strategy, so nothing can be said of choosing."
    title = Strategy(best).title
    if headroom < small:
        return (
            f"oracle_any − best_single is {headroom:.3f}, below {small:g}: it is small, so SMART cannot "
            f"help, whatever the training; always using {title} does as well as any choice."
        )
    return (
        f"oracle_any − best_single is {headroom:.3f}: this is the most that choosing a strategy could add to "
        f"always using {title} on these attempts. Were it small, SMART could not help."
    )
