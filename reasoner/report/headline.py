"""Builds the headline table of one evaluation set from the attempts at it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from reasoner.ids import derived_seed
from reasoner.methods.smart.analysis import analyse
from reasoner.methods.smart.attempts import Attempt, few_shot_table
from reasoner.methods.smart.correction import self_correction
from reasoner.methods.smart.evaluation import Comparison, compare, evaluate, evaluate_few_shot, split_few_shot
from reasoner.methods.smart.regret import regret
from reasoner.records import Strategy
from reasoner.report.data import HeadlineTable, Row
from reasoner.statistics import holm


@dataclass(frozen=True, slots=True)
class Answers:
    """What one model answered on one evaluation set."""

    label: str
    turn1: Sequence[Attempt]
    """One attempt a question."""
    kind: Literal["policy", "variant", "control"] = "policy"
    turn2: Sequence[Attempt] = ()
    """One second attempt at every question, or nothing."""
    each: Sequence[Attempt] = ()
    """One attempt a question and strategy, or nothing."""


def headline(
    name: str, few_shot: Iterable[Attempt], answered: Sequence[Answers], *, confidence: float = 0.95
) -> HeadlineTable:
    """The base's few-shot strategies and what can be made of them, then the models in the order given.

    `few_shot` may be empty; the policies come in the order of training, before variants and controls. A policy
    is compared with the best single strategy and the policy before; a variant with the best single strategy
    and the last policy; the last policy and each variant also with each control; a control with the best
    single strategy. That is the one with the highest accuracy on these questions, so a test against it favours
    the base. Every p is also given Holm-adjusted over all tests of the table. Raises DataError for double attempts.
    """
    base = list(few_shot)
    groups = split_few_shot(base)
    rows = _few_shot_rows(base, confidence)
    shown = [row for row in rows if row.kind == "few_shot"]
    best = max(shown, key=lambda row: row.accuracy.value or 0.0).label if shown else None
    best_attempts = next((group for s, group in groups.items() if few_shot_label(s) == best), [])
    notes = []
    if len(groups) > 1 and (incomplete := analyse(base, confidence=confidence).incomplete):
        notes.append(f"The oracle leaves out {incomplete} questions without a full set of scored attempts.")
    if best is None:
        notes.append(
            "There are no few-shot attempts on these questions, so nothing is compared with the base."
        )
    policies = [a for a in answered if a.kind == "policy"]
    controls = [a for a in answered if a.kind == "control"]
    previous: Answers | None = None
    for given in answered:
        judged = given.kind == "variant" or (bool(policies) and given is policies[-1])
        row = _row(given, base if len(groups) > 1 else [], confidence)
        compared = {
            "best": compare(given.turn1, best_attempts, best) if best is not None else None,
            "previous": compare(given.turn1, previous.turn1, previous.label)
            if previous and given.kind != "control"
            else None,
            "controls": tuple(compare(given.turn1, c.turn1, c.label) for c in controls if judged),
        }
        rows.append(row.model_copy(update=compared))
        if given.kind == "policy":
            previous = given
    return HeadlineTable(
        name=name, confidence=confidence, best_single=best, rows=_adjusted(rows), notes=tuple(notes)
    )


def few_shot_label(strategy: Strategy) -> str:
    """The label of a few-shot row."""
    return f"base few-shot {strategy.title}"


def random_choice(few_shot: Iterable[Attempt]) -> list[Attempt]:
    """One few-shot attempt a question, of a strategy drawn at random; the same draw wherever it is made."""
    return [
        row[list(row)[derived_seed("random few-shot strategy", problem_id) % len(row)]]
        for problem_id, row in few_shot_table(few_shot).items()
    ]


def _few_shot_rows(base: list[Attempt], confidence: float) -> list[Row]:
    rows = [
        Row(label=few_shot_label(s), kind="few_shot", accuracy=e.accuracy, evaluation=e)
        for s, e in evaluate_few_shot(base, confidence=confidence).items()
    ]
    if len(rows) < 2:
        return rows
    drawn = evaluate(random_choice(base), confidence=confidence, chooses=False)
    found, n = analyse(base, confidence=confidence), len(rows)
    return [
        *rows,
        Row(label=f"one of the {n} at random", kind="random", accuracy=drawn.accuracy, evaluation=drawn),
        Row(label=f"vote of the {n}", kind="vote", accuracy=found.vote),
        Row(label=f"any of the {n} (oracle)", kind="oracle", accuracy=found.oracle_any),
    ]


def _row(given: Answers, base: list[Attempt], confidence: float) -> Row:
    """What is measured of one model without looking at the others."""
    measured = evaluate(given.turn1, confidence=confidence)
    return Row(
        label=given.label,
        kind=given.kind,
        accuracy=measured.accuracy,
        evaluation=measured,
        regret=regret(given.turn1, base) if base else None,
        correction=self_correction(given.turn1, given.turn2, confidence=confidence) if given.turn2 else None,
        turn2=evaluate(given.turn2, confidence=confidence, chooses=False) if given.turn2 else None,
        forced=analyse(given.each, confidence=confidence) if given.each else None,
        own_regret=regret(given.turn1, given.each) if given.each else None,
    )


def _tests(row: Row) -> list[Comparison]:
    """The comparisons of a row that have a p."""
    return [c for c in (row.best, row.previous, *row.controls) if c is not None and c.p is not None]


def _adjusted(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with every p of the table Holm-adjusted; a single test needs no adjustment."""
    tests = [c.p for row in rows for c in _tests(row) if c.p is not None]
    if len(tests) < 2:
        return tuple(rows)
    adjusted = iter(holm(tests))

    def with_holm(comparison: Comparison | None) -> Comparison | None:
        if comparison is None or comparison.p is None:
            return comparison
        return replace(comparison, p_holm=next(adjusted))

    return tuple(
        row.model_copy(
            update={
                "best": with_holm(row.best),
                "previous": with_holm(row.previous),
                "controls": tuple(with_holm(c) for c in row.controls),
            }
        )
        for row in rows
    )
