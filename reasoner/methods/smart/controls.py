"""Control sets that SMART's records are compared with (METHODS 2.10 and 5). Each is trained like any epoch.

RFT (rejection sampling, Yuan et al., arXiv 2308.01825) learns correct solutions of one strategy only: it
shows what more data alone gives. Shuffled labels keep every solution and exchange the strategy names: what is
lost against the true names is due to the choice of strategy.
"""

from collections.abc import Iterable
from dataclasses import replace

from reasoner.ids import derived_seed
from reasoner.methods.smart.attempts import Attempt, by_problem
from reasoner.methods.smart.records import SolutionRecord
from reasoner.methods.smart.selection import Selection, draw, index_problems, require_known, trim
from reasoner.records import Problem, Strategy


def rft_records(
    problems: Iterable[Problem],
    attempts: Iterable[Attempt],
    strategy: Strategy,
    seed: int,
    *,
    keep: int = 4,
    max_records: int | None = None,
) -> Selection:
    """Up to `keep` distinct correct first attempts a problem, of `strategy` only, that ended by themselves.

    Distinct means by exact text up to white space. `attempts` may be few-shot attempts or a policy's samples.
    Counts: `attempts` of the strategy, `correct`, `truncated` among the correct, `dropped_max`, `records`.
    """
    known = index_problems(problems)
    groups = by_problem(a for a in attempts if a.strategy is strategy and not a.tried)
    require_known(groups, known, "attempts")
    counts = {"attempts": 0, "correct": 0, "truncated": 0}
    found: list[SolutionRecord] = []
    for problem_id, group in groups.items():
        right = [a for a in group if a.right]
        distinct: dict[str, str] = {}
        for attempt in right:
            if not attempt.truncated:
                distinct.setdefault(" ".join(attempt.solution.split()), attempt.solution)
        question = known[problem_id].question
        found += [SolutionRecord(problem_id, question, strategy, s) for s in list(distinct.values())[:keep]]
        counts["attempts"] += len(group)
        counts["correct"] += len(right)
        counts["truncated"] += sum(a.truncated for a in right)
    chosen, dropped = trim(found, balance=False, max_records=max_records, seed=(seed, "rft"))
    counts["dropped_max"] = dropped["dropped_max"]
    return Selection(chosen, {**counts, "records": len(chosen)})


def shuffled_labels(records: Iterable[SolutionRecord], seed: int) -> tuple[SolutionRecord, ...]:
    """The same records with the strategy names permuted at random among them, in the order given.

    The count of each name stays; solutions, tried strategies and kinds stay with their record. A refine
    record may therefore name a strategy that it has tried.
    """
    given = list(records)
    ordered = sorted(given, key=lambda record: record.id)
    slots = list(range(len(ordered)))
    sources = draw(slots, str, len(slots), seed, "shuffled_labels", derived_seed(*(r.id for r in ordered)))
    labels = {record.id: ordered[source].strategy for record, source in zip(ordered, sources, strict=True)}
    return tuple(replace(record, strategy=labels[record.id]) for record in given)
