"""First-attempt accuracy of a policy on one set of questions, and paired comparisons (METHODS 2.8).

A response that names no strategy counts as wrong. An unscored one is in no denominator, and is counted.
Self-correction over two turns is in `correction`; the choice of strategy, judged by few-shot attempts, in
`regret`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from reasoner.methods.smart.attempts import Attempt, few_shot_table, one_each
from reasoner.methods.smart.measured import Measured
from reasoner.records import Strategy
from reasoner.statistics import Estimate, estimate, mcnemar_exact

COLLAPSE_SHARE = 0.95
"""When one strategy takes this share of the responses, a policy no longer chooses."""


@dataclass(frozen=True, slots=True)
class Evaluation(Measured):
    """One attempt a question, measured."""

    responses: int
    accuracy: Estimate
    """acc@t1, over the scored responses."""
    unscored: int
    truncated: int
    """Responses that did not end by themselves."""
    invalid_prefix: int
    """Responses that name no strategy."""
    invalid_prefix_rate: float
    use: dict[str, int]
    """Responses by strategy; every strategy is there."""
    by_strategy: dict[str, Estimate]
    """Accuracy by strategy, over the scored responses with that strategy."""
    reasons: dict[str, dict[str, int]]
    """The verifier's reasons by strategy; `none` stands for responses without one."""
    collapse: str | None
    """The strategy that takes at least COLLAPSE_SHARE of the responses, if one does."""

    @property
    def pot_reasons(self) -> dict[str, int]:
        """The verifier's reasons for programs."""
        return self.reasons.get(Strategy.POT.value, {})


def evaluate(attempts: Iterable[Attempt], *, confidence: float = 0.95, chooses: bool = True) -> Evaluation:
    """Measure one attempt a question. `chooses` is false for few-shot attempts, whose strategy is given.

    Raises DataError where a question has two attempts.
    """
    given = list(one_each(attempts, "evaluation").values())
    scored = [a for a in given if a.scored]
    use = {s.value: sum(a.strategy is s for a in given) for s in Strategy}
    invalid = [a for a in given if a.strategy is None]
    top = max(use, key=lambda name: use[name])
    collapsed = chooses and bool(given) and use[top] >= COLLAPSE_SHARE * len(given)
    return Evaluation(
        responses=len(given),
        accuracy=estimate(sum(a.right for a in scored), len(scored), confidence),
        unscored=len(given) - len(scored),
        truncated=sum(a.truncated for a in given),
        invalid_prefix=len(invalid),
        invalid_prefix_rate=len(invalid) / len(given) if given else 0.0,
        use=use,
        by_strategy={s.value: _of_strategy(scored, s, confidence) for s in Strategy},
        reasons=_reasons(given),
        collapse=top if collapsed else None,
    )


def evaluate_few_shot(attempts: Iterable[Attempt], *, confidence: float = 0.95) -> dict[Strategy, Evaluation]:
    """Few-shot attempts measured a strategy, in canonical order."""
    return {
        s: evaluate(group, confidence=confidence, chooses=False)
        for s, group in split_few_shot(attempts).items()
    }


def split_few_shot(attempts: Iterable[Attempt]) -> dict[Strategy, list[Attempt]]:
    """Few-shot attempts by strategy, in canonical order."""
    rows = few_shot_table(attempts).values()
    groups = {s: [row[s] for row in rows if s in row] for s in Strategy}
    return {s: group for s, group in groups.items() if group}


def _of_strategy(scored: list[Attempt], strategy: Strategy, confidence: float) -> Estimate:
    group = [a for a in scored if a.strategy is strategy]
    return estimate(sum(a.right for a in group), len(group), confidence)


def _reasons(attempts: list[Attempt]) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = {}
    for attempt in attempts:
        name = "none" if attempt.strategy is None else attempt.strategy.value
        found.setdefault(name, Counter())[attempt.verdict.reason] += 1
    return {name: dict(sorted(found[name].items())) for name in sorted(found)}


@dataclass(frozen=True, slots=True)
class Comparison(Measured):
    """A model against another on the same questions. Where `p` cannot be computed `note` says why."""

    against: str
    """The other model."""
    n: int
    """Questions that both answered and that are scored for both."""
    gained: int
    """The other is wrong, this one right."""
    lost: int
    """The other is right, this one wrong."""
    both_right: int
    both_wrong: int
    excluded: int
    """Questions unscored for at least one of the two."""
    p: float | None
    """Exact two-sided McNemar."""
    note: str = ""
    p_holm: float | None = None
    """Holm-adjusted over the tests of one table, where there is such a table."""


def compare(attempts: Iterable[Attempt], other: Iterable[Attempt], against: str) -> Comparison:
    """Compare `attempts` with `other`, whose name is `against`.

    The test is paired, so it needs the same questions: where the two sets differ there is no p, and the
    counts are those of the shared questions. Raises DataError where a question has two attempts.
    """
    mine, theirs = one_each(attempts, "comparison"), one_each(other, against)
    shared = sorted(mine.keys() & theirs.keys())
    scored = [(mine[i].right, theirs[i].right) for i in shared if mine[i].scored and theirs[i].scored]
    pairs = Counter(scored)
    gained, lost = pairs[True, False], pairs[False, True]
    note = ""
    if len(shared) != len(mine) or len(shared) != len(theirs):
        note = f"no p: other problems ({len(shared)} shared of {len(mine)} and {len(theirs)})"
    elif not scored:
        note = "no p: no problem is scored for both"
    return Comparison(
        against=against,
        n=len(scored),
        gained=gained,
        lost=lost,
        both_right=pairs[True, True],
        both_wrong=pairs[False, False],
        excluded=len(shared) - len(scored),
        p=None if note else mcnemar_exact(lost, gained),
        note=note,
    )
