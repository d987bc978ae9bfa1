"""Several runs of one arm, made with different seeds, as one: what each reached, and how far they lie apart.

Together a problem has the scores of all runs, so a comparison of two such arms draws whole problems (`comparison`): it
says what other questions would show of these runs. What other seeds would show is told by the spread alone.
"""

import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from reasoner.errors import DataError, UsageError
from reasoner.evaluation.answered import Answered, Answers
from reasoner.evaluation.matching import paired
from reasoner.evaluation.sources import find
from reasoner.home import Home
from reasoner.records import Record


@dataclass(frozen=True, slots=True)
class Seed(Record):
    """One run's accuracy over the `n` problems that it has scored."""

    name: str
    n: int
    accuracy: float


@dataclass(frozen=True, slots=True)
class Spread(Record):
    """An arm's runs on one data set: the mean of their accuracies and their standard deviation (n − 1)."""

    runs: tuple[Seed, ...]
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Arm:
    """All runs together, and by data set what each reached; `spreads` is empty for a single run."""

    names: tuple[str, ...]
    answered: Answered
    spreads: Mapping[str, Spread]


def find_arm(word: str, home: Home, shared: bool = False) -> Arm:
    """The arm that `word` means: one thing that can be compared, or several with commas between them.

    UsageError for the same one twice, DataError where the runs have different data sets or problems (`shared` takes
    those that all have).
    """
    words = [word] if os.path.exists(Path(word).expanduser()) else [w.strip() for w in word.split(",")]
    runs = [find(one, home) for one in words]
    names = [run.name for run in runs]
    for one, run in zip(words, runs, strict=True):
        if words.count(one) > 1 or ("@" in run.name and names.count(run.name) > 1):
            raise UsageError(
                f"{run.name} is named twice; give other runs of the arm, each with a seed of its own"
            )
    # Evaluations are called after their model, which may be one for several of them.
    told = [replace(r, name=w) if names.count(r.name) > 1 else r for w, r in zip(words, runs, strict=True)]
    return together(told, shared)


def together(runs: Sequence[Answered], shared: bool = False) -> Arm:
    """Join runs of one arm. A single run stays as it is."""
    names = tuple(run.name for run in runs)
    if len(runs) == 1:
        return Arm(names, runs[0], {})
    common = [name for name in runs[0].sets if all(name in run.sets for run in runs)]
    if not common or (not shared and any(len(run.sets) > len(common) for run in runs)):
        raise DataError(
            f"{', '.join(names)} have different data sets ({'; '.join(', '.join(run.sets) for run in runs)}); "
            + ("--shared takes those that all have" if common else "evaluate all on the same ones")
        )
    sets, spreads = {}, {}
    for name in common:
        problems = _matched(name, runs, shared)
        sets[name] = {one[0].problem_id: _joined(one) for one in problems}
        spreads[name] = _spread(name, names, problems)
    return Arm(names, Answered(", ".join(names), sets), spreads)


def _matched(name: str, runs: Sequence[Answered], shared: bool) -> list[list[Answers]]:
    """A problem's answers of every run, for each problem that all have."""
    found = [[one] for one in runs[0].sets[name].values()]
    for run in runs[1:]:
        rows = {one[0].problem_id: one for one in found}
        heads = {key: one[0] for key, one in rows.items()}
        pairs = paired(name, runs[0].name, run.name, heads, run.sets[name], shared)
        found = [[*rows[head.problem_id], other] for head, other in pairs]
    return found


def _joined(one: Sequence[Answers]) -> Answers:
    first = one[0]
    return Answers(
        first.problem_id, first.question, first.gold, [score for run in one for score in run.scores],
        [answer for run in one for answer in run.answers], sum(run.unscored for run in one),
    )  # fmt: skip


def _spread(dataset: str, names: Sequence[str], problems: Sequence[Sequence[Answers]]) -> Spread:
    seeds = []
    for i, name in enumerate(names):
        means = [one[i].mean for one in problems if one[i].scores]
        if not means:
            raise DataError(f"{dataset}: {name} has no scored problem")
        seeds.append(Seed(name, len(means), statistics.fmean(means)))
    accuracies = [seed.accuracy for seed in seeds]
    return Spread(tuple(seeds), statistics.fmean(accuracies), statistics.stdev(accuracies))
