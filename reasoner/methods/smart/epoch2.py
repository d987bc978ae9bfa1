"""Records of epoch 2 and later, from a policy's own samples (METHODS 2.7).

Turn 1, for each question and each strategy k among its samples:

    correct(k) > wrong(k)      accepted: (none) -> first correct sample of k
    otherwise, wrong(k) > 0    failed:   a second turn with tried = [k], whatever became of other strategies

Turn 2: samples that use a tried strategy are noise. For each other strategy k2 with correct(k2) > wrong(k2):
(tried k) -> first correct sample of k2; implicit biasing also (`add`) or instead (`replace`) gives (none)
-> it. With `accept: any` one correct sample is enough for a record, at either turn. There is no third turn.
A response without a strategy name is noise; an unscored sample counts on neither side. A completion that did
not end by itself counts by its verdict but is never a target.

Departure from the paper's code: a question has at most `keep_per_strategy` direct records a strategy, with
distinct solutions, over both turns. So biasing adds nothing where turn 1 already gave (none) -> k2, or where
two failed strategies lead to the same k2; those are counted as `biased_redundant`.
"""

from collections import Counter
from collections.abc import Container, Iterable
from dataclasses import dataclass

from reasoner.config.smart import Epoch2Config
from reasoner.errors import DataError
from reasoner.methods.smart.attempts import Attempt, by_problem, rank
from reasoner.methods.smart.records import DIRECT, NO_SOLUTION, REFINE, SolutionRecord
from reasoner.methods.smart.selection import Selection, draw, index_problems, require_known, trim
from reasoner.records import Problem, Record, Strategy

_Asked = tuple[str, tuple[Strategy, ...]]
"""A problem id and what was tried."""

SAMPLE_COUNTS = ("samples", "invalid_prefix", "reused", "unscored", "truncated")
"""Counted for each turn. A sample without a name, or else one that reuses a strategy, is noise and is counted
once; `unscored` counts samples that are not noise; `truncated` counts all that did not end by themselves."""
DECISION_COUNTS = ("accepted", "failed", "no_target")
"""Counted for each turn, over questions (with what was tried) and strategies. `no_target`: accepted, but
every correct sample was truncated."""


@dataclass(frozen=True, slots=True)
class SecondTurn(Record):
    """A question to ask again, told that `tried` failed; `tried_solutions` has the first failed sample."""

    problem_id: str
    question: str
    tried: tuple[Strategy, ...]
    tried_solutions: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tried", tuple(Strategy(name) for name in self.tried))
        object.__setattr__(self, "tried_solutions", tuple(self.tried_solutions))


@dataclass(slots=True)
class _Tally:
    """The scored samples of one strategy in one group of samples, in the order of their index."""

    correct: list[Attempt]
    wrong: list[Attempt]

    @property
    def accepted(self) -> bool:
        return len(self.correct) > len(self.wrong)

    @property
    def failed(self) -> bool:
        return not self.accepted and bool(self.wrong)

    def targets(self, config: Epoch2Config) -> list[str]:
        """If accepted, the first correct solutions that ended by themselves, distinct up to white space."""
        distinct: dict[str, str] = {}
        for attempt in self.correct:
            if not attempt.truncated:
                distinct.setdefault(_squeezed(attempt.solution), attempt.solution)
        teaches = self.accepted or config.accept == "any"
        return list(distinct.values())[: config.keep_per_strategy] if teaches else []


def turn2_queue(
    problems: Iterable[Problem], turn1: Iterable[Attempt], config: Epoch2Config, seed: int, *, epoch: int = 2
) -> tuple[list[SecondTurn], dict[str, int]]:
    """The second turns to sample, in canonical order, and counts.

    `turn1` are the policy's samples with nothing tried; the order of both inputs does not matter. Counts:
    `turn1_` with SAMPLE_COUNTS and DECISION_COUNTS, `queued` second turns and `dropped_max_turn2` left out.
    Raises DataError for samples of a later turn, of an unknown problem, or with the same index twice.
    """
    known = index_problems(problems)
    counts = _zero("turn1")
    queue = _failures(known, _turn1(known, list(turn1), counts))
    kept = queue
    if config.max_turn2 is not None and len(queue) > config.max_turn2:
        key = (seed, f"epoch{epoch}", "max_turn2")
        kept = draw(queue, lambda t: f"{t.problem_id} {' '.join(t.tried)}", config.max_turn2, *key)
        kept = sorted(kept, key=lambda t: (t.problem_id, [rank(name) for name in t.tried]))
    return kept, {**counts, "queued": len(kept), "dropped_max_turn2": len(queue) - len(kept)}


def records(
    problems: Iterable[Problem],
    turn1: Iterable[Attempt],
    turn2: Iterable[Attempt],
    config: Epoch2Config,
    seed: int,
    *,
    epoch: int = 2,
    contested: Container[str] | None = None,
) -> Selection:
    """The training records of epoch `epoch` (2 or later), from both turns' samples.

    With `contested` (ids of problems on which the strategies disagree) only those give records. Counts:
    `turn1_` and `turn2_` with SAMPLE_COUNTS and DECISION_COUNTS; `biased` direct records that turn 2 gave and
    `biased_redundant` ones not added; `undisputed` records left out by `contested`; `dropped_balance`,
    `repeated`, `dropped_max`; and `direct`, `refine` and `records` that are left. Raises DataError as
    `turn2_queue`, and for a second turn that turn 1 did not ask for.
    """
    known = index_problems(problems)
    counts = _zero("turn1") | _zero("turn2") | {"biased": 0, "biased_redundant": 0}
    first = _turn1(known, list(turn1), counts)
    asked = {(turn.problem_id, turn.tried): turn for turn in _failures(known, first)}
    second = _turn2(asked, list(turn2), counts)
    direct = {
        (problem_id, strategy): [
            SolutionRecord(problem_id, known[problem_id].question, strategy, solution)
            for solution in tally.targets(config)
        ]
        for problem_id, tallies in first.items()
        for strategy, tally in tallies.items()
    }
    refine = [
        SolutionRecord(
            id_, asked[id_, tried].question, k2, solution, tried, asked[id_, tried].tried_solutions, REFINE
        )
        for (id_, tried), tallies in second.items()
        for k2, tally in tallies.items()
        for solution in tally.targets(config)
    ]
    if config.biasing != "none":
        for record in refine:
            group = direct.setdefault((record.problem_id, record.strategy), [])
            added = _add(group, _first_attempt(record), config.keep_per_strategy)
            counts["biased" if added else "biased_redundant"] += 1
    if config.biasing == "replace":
        refine = []
    found = [record for group in direct.values() for record in group] + refine
    kept = [record for record in found if contested is None or record.problem_id in contested]
    counts["undisputed"] = len(found) - len(kept)
    chosen, dropped = trim(
        kept,
        balance=config.balance_strategies,
        max_records=config.max_records,
        rarity=config.rarity,
        seed=(seed, f"epoch{epoch}"),
    )
    counts |= dropped
    for kind in (DIRECT, REFINE):
        counts[kind] = sum(record.kind == kind for record in chosen)
    return Selection(chosen, {**counts, "records": len(chosen)})


def _zero(turn: str) -> dict[str, int]:
    return {f"{turn}_{name}": 0 for name in SAMPLE_COUNTS + DECISION_COUNTS}


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def _add(group: list[SolutionRecord], record: SolutionRecord, limit: int) -> bool:
    """Append `record` unless its group is full or has the same solution; say whether it was appended."""
    if len(group) >= limit or _squeezed(record.solution) in {_squeezed(r.solution) for r in group}:
        return False
    group.append(record)
    return True


def _first_attempt(record: SolutionRecord) -> SolutionRecord:
    """The record that teaches the same solution with nothing tried: implicit biasing."""
    return SolutionRecord(record.problem_id, record.question, record.strategy, record.solution)


def _failures(known: dict[str, Problem], turn1: dict[str, dict[Strategy, _Tally]]) -> list[SecondTurn]:
    """Every second turn that turn 1 asks for, in canonical order, before any cap."""
    return [
        SecondTurn(
            problem_id,
            known[problem_id].question,
            (strategy,),
            (tally.wrong[0].solution.strip() or NO_SOLUTION,),
        )
        for problem_id, tallies in turn1.items()
        for strategy, tally in tallies.items()
        if tally.failed
    ]


def _turn1(
    known: dict[str, Problem], attempts: list[Attempt], counts: dict[str, int]
) -> dict[str, dict[Strategy, _Tally]]:
    """Turn 1's tallies by problem."""
    groups = by_problem(attempts)
    require_known(groups, known, "turn-1 samples")
    for attempt in attempts:
        if attempt.turn != 1 or attempt.tried:
            raise DataError(
                f"turn-1 samples: problem {attempt.problem_id} has one of turn {attempt.turn} with "
                f"{len(attempt.tried)} strategies tried; give only those with nothing tried"
            )
    return {problem_id: _tallies(group, counts, "turn1") for problem_id, group in groups.items()}


def _turn2(
    asked: Container[_Asked], attempts: list[Attempt], counts: dict[str, int]
) -> dict[_Asked, dict[Strategy, _Tally]]:
    """Turn 2's tallies by problem and what was tried."""
    groups: dict[_Asked, list[Attempt]] = {}
    for problem_id, samples in by_problem(attempts).items():
        for attempt in samples:
            key = (problem_id, attempt.tried)
            if attempt.turn != 2 or key not in asked:
                raise DataError(
                    f"turn-2 samples: problem {problem_id}, tried {' '.join(attempt.tried) or 'none'}, "
                    f"turn {attempt.turn}, is not what turn 1 asks for; sample what turn2_queue gives"
                )
            groups.setdefault(key, []).append(attempt)
    return {key: _tallies(group, counts, "turn2") for key, group in groups.items()}


def _tallies(samples: list[Attempt], counts: dict[str, int], turn: str) -> dict[Strategy, _Tally]:
    """The tallies of one group of samples by strategy, in canonical order; noise is counted and left out."""
    twice = [index for index, times in Counter(a.index for a in samples).items() if times > 1]
    if twice:
        raise DataError(
            f"{turn} samples: problem {samples[0].problem_id} has sample {twice[0]} more than once"
        )
    tallies: dict[Strategy, _Tally] = {}
    for attempt in samples:
        counts[f"{turn}_samples"] += 1
        counts[f"{turn}_truncated"] += attempt.truncated
        if attempt.strategy is None:
            counts[f"{turn}_invalid_prefix"] += 1
        elif attempt.strategy in attempt.tried:
            counts[f"{turn}_reused"] += 1
        elif not attempt.scored:
            counts[f"{turn}_unscored"] += 1
        else:
            tally = tallies.setdefault(attempt.strategy, _Tally([], []))
            (tally.correct if attempt.right else tally.wrong).append(attempt)
    for tally in tallies.values():
        counts[f"{turn}_accepted"] += tally.accepted
        counts[f"{turn}_failed"] += tally.failed
        counts[f"{turn}_no_target"] += tally.accepted and all(a.truncated for a in tally.correct)
    return dict(sorted(tallies.items(), key=lambda item: rank(item[0])))
