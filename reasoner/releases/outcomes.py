"""One verdict a problem, out of whatever artifact a method keeps its verdicts in."""

from pathlib import Path

from reasoner.errors import DataError
from reasoner.methods.planner.evaluation import TRAINED
from reasoner.methods.smart.attempts import Attempt, one_each
from reasoner.store.rows import read_rows

ATTEMPTS, PLAN_RUNS, EPISODES = "attempts", "plan-runs", "evaluation"


def read_outcomes(folder: Path, kind: str) -> dict[str, bool | None]:
    """By problem id: right, wrong, or None where it is unscored.

    `attempts`: a policy's first attempts. `plan-runs`: the trained planner. `evaluation`: the last turn of a
    multi-turn episode. Raises DataError for another kind, and where a problem has two verdicts.
    """
    if kind == ATTEMPTS:
        attempts = one_each(map(Attempt.from_row, read_rows(folder / "attempts.jsonl")), "an evaluation")
        return {i: a.right if a.scored else None for i, a in attempts.items()}
    if kind == PLAN_RUNS:
        from reasoner.stages.planner import read_episodes

        return _once(
            [(e.problem_id, e.verdict.correct if e.scored else None) for e in read_episodes(folder, TRAINED)]
        )
    if kind == EPISODES:
        from reasoner.stages.multiturn import read_episodes as read_turns

        return _once(
            [
                (e.problem_id, (e.r1 if e.refinement is None else e.r2) == 1 if e.scored else None)
                for e in read_turns(folder)
            ]
        )
    raise DataError(f"artifacts of kind {kind!r} hold no verdicts a problem")


def _once(pairs: list[tuple[str, bool | None]]) -> dict[str, bool | None]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise DataError(
            f"an evaluation has {len(pairs)} verdicts of {len(found)} problems; one each is expected"
        )
    return found
