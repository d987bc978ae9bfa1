"""Targets for the supervised warm start, by rejection sampling (METHODS 4.6).

Plans are drawn from the base and carried out; those that are valid and lead to the right answer are kept, the
shorter first, each once. A question that no plan solved gives no target, nor one whose plans have more sub-problems
than wanted: a planner that learns from plans at the limit also lists one more, and such a plan is invalid. What is
learnt is the plan as strict JSON, not the text that it was found in. With a greedy worker the shortest plan is atomic
wherever the worker solves the problem at once.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from reasoner.ids import content_hash
from reasoner.methods.planner.episodes import Episode
from reasoner.methods.planner.plan import MAX_SUBPROBLEMS, Plan
from reasoner.records import Record


@dataclass(frozen=True, slots=True)
class Target(Record):
    """One question and the plan that the planner shall learn to write for it."""

    problem_id: str
    question: str
    plan: Plan
    worker_tokens: int


@dataclass(frozen=True, slots=True)
class Targets:
    """What was chosen, and what became of everything else."""

    targets: tuple[Target, ...]
    counts: dict[str, int] = field(default_factory=dict)


def choose_targets(
    episodes: Sequence[Episode],
    *,
    keep: int = 1,
    max_records: int | None = None,
    max_subproblems: int = MAX_SUBPROBLEMS,
    balance: bool = False,
    seed: int = 0,
) -> Targets:
    """At most `keep` targets a question, none with more than `max_subproblems`; `balance` caps the commoner decision;
    `max_records` draws by hash."""
    groups: dict[str, list[Episode]] = {}
    for episode in episodes:
        groups.setdefault(episode.problem_id, []).append(episode)
    chosen: list[Target] = []
    unsolved = too_many = 0
    for group in groups.values():
        best: dict[str, Target] = {}
        for episode in sorted(group, key=_rank):
            plan = episode.plan
            if plan is not None and episode.verdict.correct and len(plan.subproblems) <= max_subproblems:
                best.setdefault(
                    plan.to_json(), Target(episode.problem_id, episode.question, plan, episode.worker_tokens)
                )
        solved = any(episode.plan is not None and episode.verdict.correct for episode in group)
        unsolved += not solved
        too_many += solved and not best
        chosen.extend(list(best.values())[:keep])
    drawn = sorted(chosen, key=lambda t: content_hash([seed, t.problem_id, t.plan.to_json()], 16))
    if balance:
        drawn = _balanced(drawn)
    if max_records is not None:
        drawn = drawn[:max_records]
    kinds = Counter(t.plan.should_decompose for t in drawn)
    counts = {
        "episodes": len(episodes),
        "valid": sum(e.plan is not None for e in episodes),
        "correct": sum(e.verdict.correct for e in episodes),
        "questions": len(groups),
        "unsolved": unsolved,
        "too_many_subproblems": too_many,
        "targets": len(drawn),
        "left_out": len(chosen) - len(drawn),
        "atomic": kinds[False],
        "decomposed": kinds[True],
    }
    return Targets(tuple(drawn), counts)


def _rank(episode: Episode) -> tuple[int, int, str]:
    """Shorter plans first, then cheaper ones."""
    text = episode.plan.to_json() if episode.plan is not None else ""
    return len(text), episode.worker_tokens, text


def _balanced(targets: Sequence[Target]) -> list[Target]:
    cap = min(Counter(t.plan.should_decompose for t in targets).values(), default=0)
    if len({t.plan.should_decompose for t in targets}) < 2:
        return list(targets)
    seen: Counter[bool] = Counter()
    kept = []
    for target in targets:
        seen[target.plan.should_decompose] += 1
        if seen[target.plan.should_decompose] <= cap:
            kept.append(target)
    return kept
