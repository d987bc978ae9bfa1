"""How good a policy's choice of strategy is, judged by few-shot attempts at the same questions (METHODS 2.8).

Accuracy mixes two gains: solving better and choosing better. Here only the choice counts: a choice is good
where the base, told to use that strategy, solves the question. C(q) are the strategies with which it does.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from reasoner.methods.smart.attempts import Attempt, few_shot_table, one_each
from reasoner.methods.smart.measured import Measured
from reasoner.records import Strategy


@dataclass(frozen=True, slots=True)
class Regret(Measured):
    """Counts over the questions that have a scored response and scored attempts of every strategy."""

    n: int
    excluded: int
    """Responses left out: not scored, or without a full set of scored few-shot attempts."""
    oracle: int
    """Questions with |C| >= 1."""
    solved: int
    """Questions that the policy solves."""
    solved_beyond_oracle: int
    """Questions that it solves though C is empty: what training added beyond any choice."""
    missed: int
    """Questions with |C| >= 1 where the policy chose a strategy outside C, or none."""
    regret: float | None
    """missed / n: what a perfect choice would have gained over this choice, with the base's solutions."""
    undecided: int
    """Questions where the strategies disagree, 0 < |C| < all: only there does a choice matter."""
    chosen_good: int
    """Of those, the policy chose a strategy in C."""
    best_single_good: int
    """Of those, the one strategy that is in C most often is in C."""
    random_good: float
    """Of those, the expected number for a choice at random."""


def regret(attempts: Iterable[Attempt], few_shot: Iterable[Attempt]) -> Regret:
    """Judge the strategies that `attempts` (one a question) chose by the base's few-shot attempts.

    Raises DataError for double attempts.
    """
    policy, table = one_each(attempts, "regret"), few_shot_table(few_shot)
    strategies = {s for row in table.values() for s in row}
    usable = {
        i: {s for s, a in table[i].items() if a.right}
        for i, response in policy.items()
        if response.scored
        and len(table.get(i, {})) == len(strategies)
        and all(a.scored for a in table.get(i, {}).values())
        and strategies
    }
    undecided = {i: good for i, good in usable.items() if 0 < len(good) < len(strategies)}
    missed = sum(bool(good) and policy[i].strategy not in good for i, good in usable.items())
    return Regret(
        n=len(usable),
        excluded=len(policy) - len(usable),
        oracle=sum(bool(good) for good in usable.values()),
        solved=sum(policy[i].right for i in usable),
        solved_beyond_oracle=sum(policy[i].right for i, good in usable.items() if not good),
        missed=missed,
        regret=missed / len(usable) if usable else None,
        undecided=len(undecided),
        chosen_good=sum(policy[i].strategy in good for i, good in undecided.items()),
        best_single_good=max(sum(s in good for good in undecided.values()) for s in Strategy),
        random_good=sum(len(good) / len(strategies) for good in undecided.values()),
    )
