"""Builds the headline table of one evaluation set from the attempts at it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from reasoner.methods.smart.analysis import analyse
from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.evaluation import Comparison, compare, evaluate, evaluate_few_shot, split_few_shot
from reasoner.methods.smart.regret import regret
from reasoner.records import Strategy
from reasoner.report.data import HeadlineTable, Row
from reasoner.statistics import holm


def headline(
    name: str,
    few_shot: Iterable[Attempt],
    policies: Sequence[tuple[str, Iterable[Attempt]]],
    *,
    controls: Sequence[tuple[str, Iterable[Attempt]]] = (),
    confidence: float = 0.95,
) -> HeadlineTable:
    """The base's few-shot strategies, their oracle, each policy in the order of training, then the controls.

    `few_shot` may be empty; `policies` and `controls` are (label, one attempt a question). A policy is
    compared with the best single strategy and the policy before, a control with the best single strategy and
    the last policy. The best single strategy is the one with the highest accuracy on these questions, so a
    test against it favours the base. Every p is also given Holm-adjusted over all tests of the table. Raises
    DataError for double attempts.
    """
    base = list(few_shot)
    groups = split_few_shot(base)
    rows = [
        Row(label=few_shot_label(s), kind="few_shot", accuracy=e.accuracy, evaluation=e)
        for s, e in evaluate_few_shot(base, confidence=confidence).items()
    ]
    best = max(rows, key=lambda row: row.accuracy.value or 0.0).label if rows else None
    best_attempts = next((group for s, group in groups.items() if few_shot_label(s) == best), [])
    notes = []
    if len(groups) > 1:
        found = analyse(base, confidence=confidence)
        rows.append(Row(label=f"any of the {len(groups)} (oracle)", kind="oracle", accuracy=found.oracle_any))
        if found.incomplete:
            notes.append(
                f"The oracle leaves out {found.incomplete} questions without a full set of scored attempts."
            )
    if best is None:
        notes.append(
            "There are no few-shot attempts on these questions, so nothing is compared with the base."
        )
    previous: tuple[str, list[Attempt]] | None = None
    for label, given, kind in [*((*p, "policy") for p in policies), *((*c, "control") for c in controls)]:
        attempts = list(given)
        measured = evaluate(attempts, confidence=confidence)
        rows.append(
            Row(
                label=label,
                kind=kind,  # type: ignore[arg-type]
                accuracy=measured.accuracy,
                evaluation=measured,
                best=compare(attempts, best_attempts, best) if best is not None else None,
                previous=compare(attempts, previous[1], previous[0]) if previous else None,
                regret=regret(attempts, base) if len(groups) > 1 else None,
            )
        )
        if kind == "policy":
            previous = label, attempts
    return HeadlineTable(
        name=name, confidence=confidence, best_single=best, rows=_adjusted(rows), notes=tuple(notes)
    )


def few_shot_label(strategy: Strategy) -> str:
    """The label of a few-shot row."""
    return f"base few-shot {strategy.title}"


def _adjusted(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with every p of the table Holm-adjusted; a single test needs no adjustment."""
    tests = [c.p for row in rows for c in (row.best, row.previous) if c is not None and c.p is not None]
    if len(tests) < 2:
        return tuple(rows)
    adjusted = iter(holm(tests))

    def with_holm(comparison: Comparison | None) -> Comparison | None:
        if comparison is None or comparison.p is None:
            return comparison
        return replace(comparison, p_holm=next(adjusted))

    return tuple(
        row.model_copy(update={"best": with_holm(row.best), "previous": with_holm(row.previous)})
        for row in rows
    )
