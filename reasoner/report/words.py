"""Figures as words: the cells and sentences that the Markdown page and the terminal share."""

from collections.abc import Iterable

from reasoner.methods.smart.evaluation import COLLAPSE_SHARE, Comparison
from reasoner.methods.smart.regret import Regret
from reasoner.records import Strategy
from reasoner.report.data import HeadlineTable, Row
from reasoner.statistics import Estimate

NOTHING = "—"
MODELS = ("policy", "variant", "control")
"""The kinds of rows that are trained models, which name a strategy themselves."""
RAISED = 0.05
"""Below this a Holm-adjusted p is said to be a difference."""


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
    if row.kind in MODELS and row.evaluation is not None:
        use = " / ".join(str(row.evaluation.use.get(s.value, 0)) for s in Strategy)
        invalid = percent(row.evaluation.invalid_prefix, row.evaluation.responses)
    accuracy = row.accuracy
    columns = [row.label, str(accuracy.n), share(accuracy.value), interval(accuracy)]
    return [*columns, p_cell(row.best), p_cell(row.previous), use, invalid]


def sentences(table: HeadlineTable) -> list[str]:
    """What the table cannot say: flips, why there is no p, collapse, regret, unscored answers."""
    said = [s for row in table.rows for s in _row_sentences(row)]
    said += _against_controls(table)
    tests = sum(c.p is not None for row in table.rows for c in _comparisons(row))
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


def turn2_cells(row: Row) -> list[str]:
    """One line of the table of second turns; the row has them."""
    c, second = row.correction, row.turn2
    assert c is not None and second is not None
    use = " / ".join(str(second.use.get(s.value, 0)) for s in Strategy)
    right = " / ".join(share(second.by_strategy[s.value].value) for s in Strategy)
    delta = f"{c.delta:+.3f}".replace("-", "−")
    return [
        row.label, str(c.n), share(c.acc_t1.value), share(c.acc_t2.value), delta, str(c.i_to_c), str(c.c_to_i),
        percent(c.repeated.k, c.repeated.n), use, right,
        percent(second.invalid_prefix, second.responses), f"{share(c.acc_t2_fallback.value)} ({c.retried})",
        share(c.acc_t2_oracle.value),
    ]  # fmt: skip


def turns_in_words(row: Row) -> list[str]:
    """Second turns and forced strategies as sentences, where there is no room for their tables."""
    said = []
    if row.correction is not None:
        c = row.correction
        said.append(
            f"{row.label}, a second turn for every question: acc@t1 {share(c.acc_t1.value)}, acc@t2 "
            f"{share(c.acc_t2.value)} ({c.i_to_c} mended, {c.c_to_i} spoilt, {percent(c.repeated.k, c.repeated.n)} "
            f"repeat what was tried); only where the first was unusable {share(c.acc_t2_fallback.value)}; "
            f"only where the gold says it is wrong (oracle) {share(c.acc_t2_oracle.value)}."
        )
    if row.forced is not None:
        a = row.forced
        each = ", ".join(f"{Strategy(name).title} {share(e.value)}" for name, e in a.accuracy.items())
        said.append(
            f"{row.label}, each strategy forced: {each}; vote {share(a.vote.value)}, any of them (oracle) "
            f"{share(a.oracle_any.value)}."
        )
    return said


def forced_cells(row: Row) -> list[str]:
    """One line of the table of forced strategies; the row has them."""
    a = row.forced
    assert a is not None
    each = [a.accuracy[s.value].value if s.value in a.accuracy else None for s in Strategy]
    known = [value for value in each if value is not None]
    mean = sum(known) / len(known) if known else None
    return [
        row.label, str(a.problems), share(row.accuracy.value), *map(share, each), share(mean),
        share(a.vote.value), share(a.oracle_any.value),
    ]  # fmt: skip


def _comparisons(row: Row) -> list[Comparison]:
    return [c for c in (row.best, row.previous, *row.controls) if c is not None]


def _against_controls(table: HeadlineTable) -> list[str]:
    """For each control: which trainings beat it, beyond chance."""
    said = []
    for control in (row.label for row in table.rows if row.kind == "control"):
        tested = [(row, c) for row in table.rows for c in row.controls if c.against == control]
        better = [
            f"{row.label} (+{c.gained} −{c.lost}, {p_value(_p(c))})"
            for row, c in tested
            if (p := _p(c)) is not None and p < RAISED and c.gained > c.lost
        ]
        if tested:
            found = ", ".join(better) or f"none of the {len(tested)} trainings that were compared with it"
            said.append(f"Better than {control} at p below {RAISED:g}, adjusted: {found}.")
    return said


def _p(comparison: Comparison) -> float | None:
    return comparison.p if comparison.p_holm is None else comparison.p_holm


def _choice(label: str, whose: str, r: Regret) -> str:
    return (
        f"{label}, choice of strategy judged by {whose}: some strategy solves {r.oracle} of {r.n} questions; on "
        f"{r.missed} of them the policy chose one that fails, or none (regret {share(r.regret)}). Where "
        f"strategies disagree ({r.undecided}), a working one is chosen {r.chosen_good} times; the best single "
        f"strategy works {r.best_single_good} times, a random choice {r.random_good:.1f}. The policy solves "
        f"{r.solved_beyond_oracle} that none of them solves."
    )


def _row_sentences(row: Row) -> list[str]:
    said = [_comparison(row.label, c) for c in _comparisons(row)]
    if row.regret is not None and row.regret.n:
        said.append(_choice(row.label, "the base's few-shot answers", row.regret))
    if row.own_regret is not None and row.own_regret.n:
        said.append(_choice(row.label, "its own answers with each strategy forced", row.own_regret))
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
