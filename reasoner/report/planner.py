"""The planner's report: the arms of every evaluation set, the curves, what was trained on; Markdown and
terminal lines."""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from reasoner.config.base import Section
from reasoner.config.planner import PARSE_RATE
from reasoner.methods.planner.evaluation import ARMS, Arm, Pair, PlannerEvaluation
from reasoner.report.data import Loss
from reasoner.report.markdown import render_markdown_template
from reasoner.report.words import NOTHING, interval, p_value, percent, share
from reasoner.statistics.bootstrap import Difference


class PlannerReport(Section):
    """Everything that the page says, in its order."""

    method: Literal["planner"] = "planner"
    title: str
    facts: dict[str, str] = Field(default_factory=dict)
    evaluations: tuple[PlannerEvaluation, ...] = ()
    targets: dict[str, int] = Field(default_factory=dict)
    """Counts of the warm start's targets."""
    gate: dict[str, int] = Field(default_factory=dict)
    """The warm-started planner on the validation questions: outputs, valid, correct, decomposed."""
    asked: dict[str, int] = Field(default_factory=dict)
    """Counts of GRPO's questions where they were chosen by their pass rate."""
    losses: tuple[Loss, ...] = ()
    curves: tuple[dict[str, float], ...] = ()
    """Means over windows of GRPO steps."""
    contamination: dict[str, Any] | None = None
    left_out: tuple[str, ...] = ()


ARM_HEADER = (
    "arm", "N", "accuracy", "interval", "valid plans", "decomposed", "sub-problems", "independence",
    "planner tokens", "worker tokens", "on the longest path",
)  # fmt: skip


def render(report: PlannerReport) -> str:
    """The report as one Markdown page."""
    helpers = {
        "arm_header": ARM_HEADER,
        "arm_cells": arm_cells,
        "pair_sentence": pair_sentence,
        "notes": notes,
        "gate_sentence": gate_sentence,
        "asked_sentence": asked_sentence,
    }
    return render_markdown_template("planner.md.jinja", report=report, **helpers)


def arm_cells(arm: Arm) -> list[str]:
    """One line of the table of arms."""
    return [
        arm.label, str(arm.accuracy.n), share(arm.accuracy.value), interval(arm.accuracy),
        percent(arm.valid.k, arm.valid.n), percent(arm.decomposed.k, arm.decomposed.n), _mean(arm.subproblems),
        _mean(arm.independence, 2), _mean(arm.planner_tokens, 0), _mean(arm.worker_tokens, 0),
        _mean(arm.sequential_tokens, 0),
    ]  # fmt: skip


def pair_sentence(pair: Pair) -> str:
    """A comparison in words."""
    return (
        f"{ARMS[pair.arm]} against {ARMS[pair.against]}: accuracy {_difference(pair.accuracy, 3)}, "
        f"tokens {_difference(pair.tokens, 0)}; {pair.gained} gained, {pair.lost} lost of {pair.accuracy.n}, "
        f"p = {p_value(pair.p)} (Holm {p_value(pair.p_holm)})."
    )


def gate_sentence(gate: dict[str, int]) -> str:
    """How many of the warm-started planner's outputs are valid plans, and whether that is what METHODS 4.6 asks."""
    valid, outputs = gate["valid"], gate["outputs"]
    said = f"Afterwards {valid} of {outputs} outputs on the validation questions are valid plans"
    if not outputs:
        return f"{said}: nothing was measured."
    reached = "reached" if valid >= PARSE_RATE * outputs else "not reached"
    return f"{said} ({valid / outputs:.1%}): {PARSE_RATE:.0%} {reached}."


def asked_sentence(asked: dict[str, int]) -> str:
    """Which questions GRPO learnt from."""
    untried = f", {asked['untried']} have no scored plan" if asked["untried"] else ""
    return (
        f"GRPO asked {asked['kept']} of {asked['questions']} training questions, those that some of the base's plans "
        f"solve and others do not: {asked['too_hard']} were solved by too few plans, {asked['too_easy']} by too "
        f"many{untried}."
    )


def seconds_sentence(found: PlannerEvaluation, seconds: Mapping[str, float]) -> str:
    """What each arm took, from the manifest of its runs (`stages.planner.shared_seconds`)."""
    told = ", ".join(f"{label} {seconds[name]:.1f}" for name, label in ARMS.items() if name in seconds)
    return (
        f"Seconds for all {found.n} problems as one batch: {told}. Plans are timed by arm; the worker was asked for "
        "all arms at once, and its seconds are shared by tokens."
    )


def notes(found: PlannerEvaluation) -> list[str]:
    """What the table leaves out: unscored problems, cut worker calls, why plans were invalid."""
    said = []
    for arm in found.arms:
        if arm.unscored:
            said.append(f"{arm.label}: unscored, not in N: {arm.unscored}.")
        if arm.truncated_calls:
            said.append(f"{arm.label}: worker calls cut at the token limit: {arm.truncated_calls}.")
        if arm.reasons:
            why = ", ".join(f"{reason} {count}" for reason, count in arm.reasons.items())
            said.append(f"{arm.label}: invalid plans: {why}.")
    return said


def plain_lines(report: PlannerReport) -> list[str]:
    """The warm start's plans and the tables for a terminal, columns aligned, and the sentence on success."""
    lines = [f"Warm start: {gate_sentence(report.gate)}"] if report.gate else []
    for found in report.evaluations:
        cells = [list(ARM_HEADER), *(arm_cells(arm) for arm in found.arms)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(ARM_HEADER))]
        lines.append(found.name)
        for row in cells:
            padded = [
                row[0].ljust(widths[0]),
                *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)),
            ]
            lines.append("  ".join(padded).rstrip())
        lines.append(found.sentence)
    return lines


def _mean(value: float | None, digits: int = 1) -> str:
    return NOTHING if value is None else f"{value:.{digits}f}"


def _difference(found: Difference, digits: int) -> str:
    if found.value is None:
        return NOTHING
    return f"{found.value:+.{digits}f} ({found.low:+.{digits}f} to {found.high:+.{digits}f})"
