"""Records of epoch 1, from few-shot attempts (METHODS 2.5).

For a question q with C(q) the strategies whose attempt is correct and W(q) those whose attempt is wrong:

    for S in C:            (tried none) -> S      "direct"
    for K in W, S in C:    (tried K)    -> S      "refine"

Departures from the paper's code, which has no published form of this step: an unscored attempt is in neither
C nor W; a completion that did not end by itself is in C or W by its verdict, but never a target.
"""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import Any

from reasoner.config.smart import Epoch1Config
from reasoner.methods.smart.attempts import Attempt, few_shot_table
from reasoner.methods.smart.records import DIRECT, NO_SOLUTION, REFINE, SolutionRecord
from reasoner.methods.smart.selection import Selection, draw, index_problems, pick, require_known, trim
from reasoner.records import Problem, Strategy


def records(
    problems: Iterable[Problem], attempts: Iterable[Attempt], config: Epoch1Config, seed: int
) -> Selection:
    """The training records of epoch 1.

    `attempts` holds at most one few-shot attempt a problem and strategy. The order of both inputs does not
    matter. Raises DataError for a double attempt, one without strategy, or one of an unknown problem.

    Counts: `problems` with attempts, `attempts`, `correct`, `wrong`, `unscored`, `truncated` attempts,
    `unsolved` problems (C empty), `easy` ones left out, `no_target` problems (solved, but only by truncated
    attempts), `dropped_subsample`, `dropped_balance`, `repeated`, `dropped_max` records, and `direct`,
    `refine` and `records` that are left.
    """
    known = index_problems(problems)
    table = few_shot_table(attempts)
    require_known(table, known, "few-shot attempts")
    strategies = {strategy for row in table.values() for strategy in row}
    counts = _attempt_counts(table)
    direct: list[SolutionRecord] = []
    refine: list[SolutionRecord] = []
    for problem_id, row in table.items():
        correct = [s for s, attempt in row.items() if attempt.right]
        targets = [s for s in correct if not row[s].truncated]
        if not correct:
            counts["unsolved"] += 1
        elif config.drop_easy and len(correct) == len(strategies):
            counts["easy"] += 1
        elif not targets:
            counts["no_target"] += 1
        else:
            direct += [_record(known[problem_id], row, s) for s in _direct(targets, config, problem_id, seed)]
            pairs = _pairs(row, targets, config, problem_id, seed)
            refine += [_record(known[problem_id], row, s, k) for k, s in pairs]
    kept = _subsample(direct, config.direct_subsample, seed)
    counts["dropped_subsample"] = len(direct) - len(kept)
    chosen, dropped = trim(
        kept + refine,
        balance=config.balance_strategies,
        max_records=config.max_records,
        rarity=config.rarity,
        seed=(seed, "epoch1"),
    )
    counts |= dropped
    for kind in (DIRECT, REFINE):
        counts[kind] = sum(record.kind == kind for record in chosen)
    return Selection(chosen, {**counts, "records": len(chosen)})


def _attempt_counts(table: Mapping[str, Mapping[Strategy, Attempt]]) -> dict[str, int]:
    made = [attempt for row in table.values() for attempt in row.values()]
    return {
        "problems": len(table),
        "attempts": len(made),
        "correct": sum(a.right for a in made),
        "wrong": sum(a.scored and not a.right for a in made),
        "unscored": sum(not a.scored for a in made),
        "truncated": sum(a.truncated for a in made),
        "unsolved": 0,
        "easy": 0,
        "no_target": 0,
    }


def _direct(targets: list[Strategy], config: Epoch1Config, *seed: Any) -> list[Strategy]:
    """Which targets become direct records. A strategy that `priority` does not list gives none under it."""
    if config.direct == "one_random":
        return [pick(targets, "epoch1", "direct", *seed)]
    if config.direct == "priority":
        return [s for s in config.priority if s in targets][:1]
    return targets


def _pairs(
    row: Mapping[Strategy, Attempt], targets: list[Strategy], config: Epoch1Config, *seed: Any
) -> list[tuple[Strategy, Strategy]]:
    """The (wrong, correct) pairs that become refine records."""
    wrong = [s for s, attempt in row.items() if attempt.scored and not attempt.right]
    pairs = [(k, s) for k in wrong for s in targets] if config.refine else []
    if pairs and config.refine_pairs == "one_random":
        return [pick(pairs, "epoch1", "refine", *seed)]
    return pairs


def _record(
    problem: Problem, row: Mapping[Strategy, Attempt], strategy: Strategy, tried: Strategy | None = None
) -> SolutionRecord:
    return SolutionRecord(
        problem_id=problem.id,
        question=problem.question,
        strategy=strategy,
        solution=row[strategy].solution,
        tried=() if tried is None else (tried,),
        tried_solutions=() if tried is None else (row[tried].solution.strip() or NO_SOLUTION,),
        kind=DIRECT if tried is None else REFINE,
    )


def _subsample(direct: list[SolutionRecord], share: float, seed: int) -> list[SolutionRecord]:
    """This share of the direct records, rounded up."""
    if share >= 1:
        return direct
    # The small term undoes binary rounding: 0.07 * 100 is 7.000000000000001.
    return draw(
        direct, lambda record: record.id, ceil(len(direct) * share - 1e-9), seed, "epoch1", "subsample"
    )
