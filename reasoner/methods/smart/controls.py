"""Control sets that SMART's records are compared with (METHODS 2.10 and 5). Each is trained like any epoch.

RFT (rejection sampling, Yuan et al., arXiv 2308.01825) learns correct solutions of one strategy only: it
shows what more data alone gives; STaR (arXiv 2203.14465, without its rationalisation) is the same, repeated
from the base. Shuffled labels keep every solution and exchange the strategy names: what is lost against the
true names is due to the choice of strategy. Given solutions are those that came with the questions.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from reasoner.errors import DataError
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


CALCULATOR = re.compile(r"<<[^<>\n]*>>")
"""GSM8K's calculator annotations."""
ANSWER_LINE = re.compile(r"(^\s*####|\bthe answer is\b).*$", re.IGNORECASE | re.MULTILINE)
"""GSM8K's last line, and how MetaMathQA and our generator end."""


def given_records(problems: Iterable[Problem], seed: int, *, max_records: int | None = None) -> Selection:
    """The solutions that came with the questions, as Chain of Thought, each ending in our answer line.

    Calculator annotations and the data's own answer lines are taken out. Counts: `problems`, `without_solution`,
    `dropped_max`, `records`. Raises DataError where no problem has a solution.
    """
    given = list(problems)
    found = [
        SolutionRecord(p.id, p.question, Strategy.COT, as_chain_of_thought(p.solution, p.gold))
        for p in given
        if p.solution.strip()
    ]
    if given and not found:
        names = ", ".join(sorted({p.dataset for p in given}))
        raise DataError(
            f"none of the {len(given)} questions of {names} comes with a solution; name the column with "
            "columns.solution, or use a set that has one, such as data=gsm8k"
        )
    chosen, dropped = trim(found, balance=False, max_records=max_records, seed=(seed, "given"))
    counts = {
        "problems": len(given),
        "without_solution": len(given) - len(found),
        "dropped_max": dropped["dropped_max"],
    }
    return Selection(chosen, {**counts, "records": len(chosen)})


def as_chain_of_thought(solution: str, gold: str) -> str:
    """A solution in the form of Chain of Thought: its steps, then `The answer is {gold}.`"""
    steps = ANSWER_LINE.sub("", CALCULATOR.sub("", solution))
    lines = [line.strip() for line in steps.splitlines() if line.strip()]
    return "\n".join([*lines, f"The answer is {gold}."])


def shuffled_labels(records: Iterable[SolutionRecord], seed: int) -> tuple[SolutionRecord, ...]:
    """The same records with the strategy names permuted at random among them, in the order given.

    The count of each name stays; solutions, tried strategies and kinds stay with their record. A refine
    record may therefore name a strategy that it has tried.
    """
    given = list(records)
    ids = [record.id for record in given]
    slots = sorted(range(len(given)), key=lambda i: (ids[i], i))  # a record may stand there more than once
    places = draw(range(len(slots)), str, len(slots), seed, "shuffled_labels", derived_seed(*sorted(ids)))
    labels = {slot: given[slots[place]].strategy for slot, place in zip(slots, places, strict=True)}
    return tuple(replace(record, strategy=labels[i]) for i, record in enumerate(given))
