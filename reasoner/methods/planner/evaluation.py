"""The arms of METHODS 4.7 on one set of questions, with intervals and paired tests.

(a) trained planner, (b) untrained planner, (c) always atomic, (d) always decomposed (the planner's answer is
begun for it), (e) the better of c and d, an oracle. Success: (a) is above both (b) and (c) with the interval
of the difference, or equal within a margin with fewer tokens. An unscored problem is left out of an arm's
accuracy and of every pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import TypeAdapter

from reasoner.errors import DataError
from reasoner.methods.planner.episodes import Episode
from reasoner.methods.planner.independence import Embed, independences
from reasoner.records import Record
from reasoner.statistics import Estimate, estimate, holm, mcnemar_exact
from reasoner.statistics.bootstrap import Difference, paired_difference

TRAINED, UNTRAINED, ATOMIC, DECOMPOSED, ORACLE = "trained", "untrained", "atomic", "decomposed", "oracle"
ARMS = {
    TRAINED: "(a) trained planner",
    UNTRAINED: "(b) untrained planner",
    ATOMIC: "(c) always atomic",
    DECOMPOSED: "(d) always decomposed",
    ORACLE: "(e) better of c and d (oracle)",
}
MARGIN = 0.02
"""Accuracy that counts as equal: the interval's lower end may be this far below 0."""


class Read(Record):
    """A record of records, read back whole."""

    __slots__ = ()

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Self:
        return TypeAdapter(cls).validate_python(row)


@dataclass(frozen=True, slots=True)
class Arm(Read):
    """One arm on one set. Means are over problems with a valid plan, tokens over all problems."""

    name: str
    label: str
    accuracy: Estimate
    unscored: int
    valid: Estimate
    decomposed: Estimate
    subproblems: float | None
    independence: float | None
    extra_text: int
    planner_tokens: float
    worker_tokens: float
    sequential_tokens: float
    truncated_calls: int
    reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class Pair(Read):
    """An arm against another on the problems that both have scored."""

    arm: str
    against: str
    gained: int
    lost: int
    accuracy: Difference
    tokens: Difference
    p: float
    p_holm: float


@dataclass(frozen=True, slots=True)
class PlannerEvaluation(Read):
    """A set measured. `verdict` is `above`, `cheaper`, `not_shown` or `no_baseline`."""

    name: str
    n: int
    confidence: float
    arms: tuple[Arm, ...]
    pairs: tuple[Pair, ...]
    verdict: str
    sentence: str


def measure_arm(
    name: str, episodes: Sequence[Episode], *, confidence: float = 0.95, embed: Embed | None = None
) -> Arm:
    """Counts and means of one arm. Without `embed` independence is left out."""
    scored = [e for e in episodes if e.scored]
    valid = [e for e in episodes if e.plan is not None]
    split = [e.plan.subproblems for e in valid if e.plan is not None and e.decomposed]
    values = independences(embed, split) if embed is not None else []
    reasons: dict[str, int] = {}
    for episode in episodes:
        if episode.plan is None:
            reasons[episode.reason] = reasons.get(episode.reason, 0) + 1
    return Arm(
        name=name,
        label=ARMS.get(name, name),
        accuracy=estimate(sum(e.verdict.correct for e in scored), len(scored), confidence),
        unscored=len(episodes) - len(scored),
        valid=estimate(len(valid), len(episodes), confidence),
        decomposed=estimate(len(split), len(valid), confidence),
        subproblems=_mean([len(parts) for parts in split]),
        independence=_mean(values),
        extra_text=sum(e.extra_text for e in valid),
        planner_tokens=_mean([e.planner_tokens for e in episodes]) or 0.0,
        worker_tokens=_mean([e.worker_tokens for e in episodes]) or 0.0,
        sequential_tokens=_mean([e.sequential_tokens for e in episodes]) or 0.0,
        truncated_calls=sum(e.truncated_calls for e in episodes),
        reasons=dict(sorted(reasons.items())),
    )


def oracle(atomic: Sequence[Episode], decomposed: Sequence[Episode]) -> list[Episode]:
    """Of each problem the right run, the cheaper one where both are right or both are wrong."""
    others = _by_problem(decomposed, DECOMPOSED)
    chosen = []
    for one in atomic:
        other = others.get(one.problem_id)
        pair = [one] if other is None else [one, other]
        chosen.append(min(pair, key=lambda e: (not e.verdict.correct, not e.scored, e.tokens)))
    return chosen


def evaluate(
    name: str,
    arms: Mapping[str, Sequence[Episode]],
    *,
    confidence: float = 0.95,
    resamples: int = 10_000,
    embed: Embed | None = None,
) -> PlannerEvaluation:
    """Every arm that was run, the oracle where c and d were, and the first arm against the others.

    Raises DataError where an arm has a problem twice or lacks one that another has.
    """
    runs = {arm: list(episodes) for arm, episodes in arms.items()}
    ids = {arm: set(_by_problem(episodes, arm)) for arm, episodes in runs.items()}
    first = next(iter(ids.values()), set())
    for arm, found in ids.items():
        if found != first:
            raise DataError(f"arm {arm!r} has other problems than the first ({len(found)} and {len(first)})")
    if ATOMIC in runs and DECOMPOSED in runs:
        runs[ORACLE] = oracle(runs[ATOMIC], runs[DECOMPOSED])
    measured = tuple(
        measure_arm(arm, episodes, confidence=confidence, embed=None if arm == ATOMIC else embed)
        for arm, episodes in runs.items()
    )
    against = [arm for arm in (UNTRAINED, ATOMIC, DECOMPOSED, ORACLE) if arm in runs]
    pairs = (
        compare(runs, TRAINED, against, confidence=confidence, resamples=resamples) if TRAINED in runs else ()
    )
    verdict, sentence = judge_success(pairs)
    return PlannerEvaluation(name, len(first), confidence, measured, pairs, verdict, sentence)


def compare(
    runs: Mapping[str, Sequence[Episode]],
    arm: str,
    against: Sequence[str],
    *,
    confidence: float,
    resamples: int,
) -> tuple[Pair, ...]:
    """`arm` against each of the others: McNemar's exact p, Holm-adjusted, and bootstrapped differences."""
    mine = _by_problem(runs[arm], arm)
    found = []
    for other in against:
        theirs = _by_problem(runs[other], other)
        both = [(e, theirs[i]) for i, e in mine.items() if e.scored and theirs[i].scored]
        right = [(a.verdict.correct, b.verdict.correct) for a, b in both]
        gained, lost = right.count((True, False)), right.count((False, True))
        options = {"confidence": confidence, "resamples": resamples, "seed": 0}
        accuracy = paired_difference([float(a) for a, _ in right], [float(b) for _, b in right], **options)  # type: ignore[arg-type]
        tokens = paired_difference([a.tokens for a, _ in both], [b.tokens for _, b in both], **options)  # type: ignore[arg-type]
        found.append((other, gained, lost, accuracy, tokens, mcnemar_exact(lost, gained)))
    adjusted = holm([row[-1] for row in found])
    return tuple(Pair(arm, *row, p_holm) for row, p_holm in zip(found, adjusted, strict=True))


def judge_success(pairs: Sequence[Pair]) -> tuple[str, str]:
    """METHODS 4.7's criterion in a word and in a sentence."""
    wanted = {p.against: p for p in pairs if p.against in (UNTRAINED, ATOMIC)}
    if len(wanted) < 2:
        return "no_baseline", "Success is not judged: it needs the trained, the untrained and the atomic arm."
    lows = [p.accuracy.low for p in wanted.values()]
    if all(low is not None and low > 0 for low in lows):
        return "above", "Reached: the trained planner is above the untrained one and above always-atomic."
    equal = all(low is not None and low > -MARGIN for low in lows)
    cheaper = all(p.tokens.high is not None and p.tokens.high < 0 for p in wanted.values())
    if equal and cheaper:
        return "cheaper", (
            f"Reached by economy: at most {MARGIN:.0%} below the untrained planner and always-atomic, with fewer "
            "tokens than either."
        )
    missed = " and ".join(
        ARMS[p.against].split(") ")[1]
        for p in wanted.values()
        if p.accuracy.low is None or p.accuracy.low <= 0
    )
    return "not_shown", f"Not reached: the trained planner is not shown to be above {missed}."


def _by_problem(episodes: Sequence[Episode], arm: str) -> dict[str, Episode]:
    found = {e.problem_id: e for e in episodes}
    if len(found) != len(episodes):
        raise DataError(f"arm {arm!r} has a problem twice")
    return found


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
