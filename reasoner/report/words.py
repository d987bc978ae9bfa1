"""Figures as words: the cells and sentences that the Markdown page and the terminal share."""

from collections.abc import Iterable

from reasoner.methods.smart.evaluation import COLLAPSE_SHARE, Comparison
from reasoner.records import Strategy
from reasoner.report.data import HeadlineTable, Row
from reasoner.statistics import Estimate

NOTHING = "—"


def share(value: float | None) -> str:
    """A proportion with three decimals."""
    return NOTHING if value is None else f"{value:.3f}"


def interval(estimate: Estimate) -> str:
    """The interval of a proportion; none without trials."""
    return f"{estimate.low:.3f}–{estimate.high:.3f}" if estimate.n else NOTHING


def p_value(p: float | None) -> str:
    """A p-value: three decimals, or one significant digit below 0.001."""
    if p is None:
        return NOTHING
    return f"{p:.3f}" if p >= 0.001 else f"{p:.0e}"


def p_cell(comparison: Comparison | None) -> str:
    """The p of a comparison; `no p` where it could not be computed (the reason stands below the table)."""
    if comparison is None:
        return NOTHING
    return "no p" if comparison.p is None else p_value(comparison.p)


def percent(part: int, whole: int) -> str:
    """A count with its share in percent."""
    return f"{part} ({100 * part / whole:.1f} %)" if whole else str(part)


def header(table: HeadlineTable) -> list[str]:
    """The columns of a headline table."""
    names = " / ".join(s.value for s in Strategy)
    return [
        "model",
        "N",
        "accuracy",
        f"{100 * table.confidence:g} % interval",
        "p, best few-shot",
        "p, epoch before",
        f"use {names}",
        "no strategy",
    ]


def cells(row: Row) -> list[str]:
    """One line of a headline table."""
    use, invalid = NOTHING, NOTHING
    if row.kind in ("policy", "control") and row.evaluation is not None:
        use = " / ".join(str(row.evaluation.use.get(s.value, 0)) for s in Strategy)
        invalid = percent(row.evaluation.invalid_prefix, row.evaluation.responses)
    accuracy = row.accuracy
    columns = [row.label, str(accuracy.n), share(accuracy.value), interval(accuracy)]
    return [*columns, p_cell(row.best), p_cell(row.previous), use, invalid]


def sentences(table: HeadlineTable) -> list[str]:
    """What the table cannot say: flips, why there is no p, collapse, regret, unscored answers."""
    said = [s for row in table.rows for s in _row_sentences(row)]
    tests = sum(c.p is not None for row in table.rows for c in (row.best, row.previous) if c is not None)
    if tests:
        said.append(
            "p is McNemar's exact two-sided test on the same questions; the best few-shot strategy is chosen "
            f"on them too, which favours the base. Tests in this table: {tests}"
            + ("; “Holm” is p adjusted for all of them." if tests > 1 else ".")
        )
    return [*said, *table.notes]


def collapses(rows: Iterable[Row]) -> list[str]:
    """One plain sentence for each policy that no longer chooses."""
    said = []
    for row in rows:
        found = row.evaluation
        if found is not None and found.collapse is not None:
            name = found.collapse
            said.append(
                f"COLLAPSE: {row.label} answers {found.use[name]} of {found.responses} questions with "
                f"{Strategy(name).title} (alarm at {100 * COLLAPSE_SHARE:g} %). It does not choose a "
                "strategy, and its accuracy is no evidence that choosing helps."
            )
    return said


def _row_sentences(row: Row) -> list[str]:
    said = [_comparison(row.label, c) for c in (row.best, row.previous) if c is not None]
    if row.regret is not None and row.regret.n:
        r = row.regret
        said.append(
            f"{row.label}, choice of strategy: of {r.n} questions the base solves {r.oracle} with some "
            f"strategy; on {r.missed} of them the policy chose one that fails, or none (regret "
            f"{share(r.regret)}). Where the base's strategies disagree ({r.undecided}), a working one is "
            f"chosen {r.chosen_good} times; the best single strategy works {r.best_single_good} times, "
            f"a random choice {r.random_good:.1f}. The policy solves {r.solved_beyond_oracle} that the base "
            "solves with none."
        )
    found = row.evaluation
    if found is not None and found.unscored:
        said.append(f"{row.label}: unscored answers, not in N: {percent(found.unscored, found.responses)}.")
    if found is not None and found.truncated:
        said.append(
            f"{row.label}: responses cut before their end: {percent(found.truncated, found.responses)}."
        )
    return said


def _comparison(label: str, c: Comparison) -> str:
    start = f"{label} against {c.against}: "
    if c.p is None:
        return start + f"{c.note}."
    adjusted = "" if c.p_holm is None else f" (Holm {p_value(c.p_holm)})"
    left_out = f"; left out as unscored for one of them: {c.excluded}" if c.excluded else ""
    return start + f"{c.gained} gained, {c.lost} lost of {c.n}, p = {p_value(c.p)}{adjusted}{left_out}."
