"""Which questions GRPO learns from: those that some plans solve and others do not (METHODS 6).

A group of plans that are all right, or all wrong, has no advantage. Which questions make such groups is known before
GRPO from plans that have been carried out; never splitting and always splitting are among them, since a planner that
only splits tells nothing of the other way.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from reasoner.methods.planner.episodes import Episode
from reasoner.records import Problem


@dataclass(frozen=True, slots=True)
class Chosen:
    """The questions that are kept, in their order, and how many there are of each kind."""

    problems: tuple[Problem, ...]
    counts: dict[str, int]


def pass_rates(tried: Iterable[Episode]) -> dict[str, float]:
    """Share of right plans by question. Invalid plans count as wrong, unscored ones not at all."""
    seen: dict[str, list[bool]] = {}
    for episode in tried:
        if episode.scored:
            seen.setdefault(episode.problem_id, []).append(episode.verdict.correct)
    return {name: sum(right) / len(right) for name, right in seen.items()}


def choose_questions(
    problems: Sequence[Problem], tried: Iterable[Episode], low: float, high: float
) -> Chosen:
    """The questions whose pass rate is from `low` to `high`. One without a scored plan is left out."""
    rates = pass_rates(tried)
    kept = tuple(p for p in problems if p.id in rates and low <= rates[p.id] <= high)
    counts = {
        "questions": len(problems),
        "kept": len(kept),
        "too_hard": sum(rates[p.id] < low for p in problems if p.id in rates),
        "too_easy": sum(rates[p.id] > high for p in problems if p.id in rates),
        "untried": sum(p.id not in rates for p in problems),
    }
    return Chosen(kept, counts)
