"""Counts what an audit found. An example stands for each kind of finding, so that somebody can look."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from reasoner.audit.opinions import Reviewed
from reasoner.audit.work import shows_work
from reasoner.records import Outcome, Record, Strategy, Verdict
from reasoner.verifiers.hacks import hack_signs
from reasoner.verifiers.solutions import program_of

EXAMPLES = 20
"""Examples kept of each finding."""
TAIL = 300
"""Characters of a solution's end in an example."""


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """One kind of finding: how many of how many, by what, with examples."""

    count: int
    of: int
    by: dict[str, int] = field(default_factory=dict)
    examples: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Audit(Record):
    """What an audit found in `attempts` attempts. A paid attempt is one whose recorded outcome is correct."""

    run: str
    attempts: int
    sources: dict[str, dict[str, int]]
    """Recorded outcomes by source."""
    not_run: int
    """Programs that could not be judged again: this machine has no sandbox."""
    changed: Finding
    """The verifier of today says otherwise; by `recorded -> now`."""
    paid_alone: Finding
    """Paid, and the second opinion calls it wrong (prose); by strategy."""
    refused_alone: Finding
    """Refused, and the second opinion calls it right (prose); by strategy."""
    unsteady: Finding
    """Programs with another verdict when they are run once more."""
    unscored: Finding
    """Recorded as unscored, by reason: no reward was given."""
    suspects: Finding
    """Programs with a sign of an attack on the judge, by sign."""
    suspects_paid: Finding
    truncated_paid: Finding
    """Paid although the completion was cut off, by strategy."""
    workless_paid: Finding
    """Paid without a step shown, by strategy."""
    missing: tuple[str, ...] = ()
    """Artifacts of the run that are gone, so that attempts may be lacking here."""


def find(run: str, reviewed: Sequence[Reviewed], missing: Iterable[str] = ()) -> Audit:
    """Everything there is to say about some reviewed attempts."""
    paid = [r for r in reviewed if r.attempt.verdict.correct]
    judged = [r for r in reviewed if r.now is not None]
    prose = [r for r in judged if r.second is not None and r.attempt.strategy is not Strategy.POT]
    programs = [r for r in judged if r.second is not None and r.attempt.strategy is Strategy.POT]
    refused = [r for r in prose if r.now is not None and r.now.outcome is Outcome.INCORRECT]
    written = [r for r in reviewed if r.attempt.strategy is Strategy.POT]
    signs = {id(r): hack_signs(program_of(r.attempt.solution) or "") for r in written}
    suspects = [r for r in written if signs[id(r)]]
    return Audit(
        run=run,
        attempts=len(reviewed),
        sources=_by_source(reviewed),
        not_run=len(reviewed) - len(judged),
        changed=_finding([r for r in judged if _changed(r)], judged, _change),
        paid_alone=_finding([r for r in prose if _now(r).correct and not _second(r).correct],
                            [r for r in prose if _now(r).correct], _strategy),
        refused_alone=_finding([r for r in refused if _second(r).correct], refused, _strategy),
        unsteady=_finding([r for r in programs if _now(r).outcome != _second(r).outcome], programs, _change_again),
        unscored=_finding([r for r in reviewed if r.attempt.verdict.outcome is Outcome.UNSCORED], reviewed,
                          lambda r: r.attempt.verdict.reason),
        suspects=_finding(suspects, written, lambda r: ", ".join(signs[id(r)])),
        suspects_paid=_finding([r for r in suspects if r.attempt.verdict.correct],
                               [r for r in written if r.attempt.verdict.correct], lambda r: ", ".join(signs[id(r)])),
        truncated_paid=_finding([r for r in paid if r.attempt.truncated], paid, _strategy),
        workless_paid=_finding([r for r in paid if not _shows_work(r)], paid, _strategy),
        missing=tuple(missing),
    )  # fmt: skip


def _finding(found: Sequence[Reviewed], among: Sequence[Reviewed], by: Callable[[Reviewed], str]) -> Finding:
    counts = Counter(by(r) for r in found)
    examples = tuple(_example(r) for r in found[:EXAMPLES])
    return Finding(len(found), len(among), dict(sorted(counts.items())), examples)


def _by_source(reviewed: Sequence[Reviewed]) -> dict[str, dict[str, int]]:
    counts: dict[str, Counter[str]] = {}
    for r in reviewed:
        counts.setdefault(r.source, Counter())[r.attempt.verdict.outcome.value] += 1
    return {source: dict(sorted(count.items())) for source, count in sorted(counts.items())}


def _now(r: Reviewed) -> Verdict:
    assert r.now is not None
    return r.now


def _second(r: Reviewed) -> Verdict:
    assert r.second is not None
    return r.second


def _changed(r: Reviewed) -> bool:
    recorded, now = r.attempt.verdict, _now(r)
    return (recorded.outcome, recorded.reason) != (now.outcome, now.reason)


def _change(r: Reviewed) -> str:
    return f"{_words(r.attempt.verdict)} -> {_words(_now(r))}"


def _change_again(r: Reviewed) -> str:
    return f"{_words(_now(r))} -> {_words(_second(r))}"


def _words(verdict: Verdict) -> str:
    return f"{verdict.outcome.value} ({verdict.reason})"


def _strategy(r: Reviewed) -> str:
    return r.attempt.strategy.value if r.attempt.strategy is not None else "none"


def _shows_work(r: Reviewed) -> bool:
    return r.attempt.strategy is None or shows_work(r.attempt.strategy, r.attempt.solution)


def _example(r: Reviewed) -> dict[str, Any]:
    attempt = r.attempt
    return {
        "source": r.source, "problem_id": attempt.problem_id, "turn": attempt.turn, "index": attempt.index,
        "strategy": _strategy(r), "finish": attempt.finish, "gold": r.gold,
        "recorded": _words(attempt.verdict), "extracted": attempt.verdict.extracted,
        "now": None if r.now is None else _words(r.now),
        "second": None if r.second is None else _words(r.second),
        "second_extracted": None if r.second is None else r.second.extracted,
        "solution": attempt.solution[-TAIL:],
    }  # fmt: skip
