"""Questions that tell a policy something: those that some of its answers solve and others do not (METHODS 6).

GRPO's group of answers that are all right, or all wrong, has no advantage. Which questions make such groups is known
before it from answers that have been judged.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reasoner.records import Problem


@dataclass(frozen=True, slots=True)
class Chosen:
    """The questions that are kept, in their order, and how many there are of each kind."""

    problems: tuple[Problem, ...]
    counts: dict[str, int]


def pass_rates(judged: Iterable[tuple[str, bool]]) -> dict[str, float]:
    """Share of right answers by question, of pairs of a question's id and whether an answer is right."""
    seen: dict[str, list[bool]] = {}
    for name, right in judged:
        seen.setdefault(name, []).append(right)
    return {name: sum(rights) / len(rights) for name, rights in seen.items()}


def choose_telling(
    problems: Sequence[Problem], judged: Iterable[tuple[str, bool]], low: float, high: float
) -> Chosen:
    """The questions whose pass rate is from `low` to `high`. One without a judged answer is left out."""
    rates = pass_rates(judged)
    kept = tuple(p for p in problems if p.id in rates and low <= rates[p.id] <= high)
    counts = {
        "questions": len(problems),
        "kept": len(kept),
        "too_hard": sum(rates[p.id] < low for p in problems if p.id in rates),
        "too_easy": sum(rates[p.id] > high for p in problems if p.id in rates),
        "untried": sum(p.id not in rates for p in problems),
    }
    return Chosen(kept, counts)
