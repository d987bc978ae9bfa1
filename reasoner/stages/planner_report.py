"""The report of a planner run: `report.md` for people, `report.json` for everything that shows it again."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasoner.methods.planner.evaluation import PlannerEvaluation
from reasoner.report import contamination as overlap
from reasoner.report.data import Loss
from reasoner.report.planner import PlannerReport, render
from reasoner.stages import contamination
from reasoner.stages import problems as questions
from reasoner.stages.planner_records import read_json
from reasoner.stages.smart import write_json
from reasoner.store.rows import read_rows


def write(
    out: Path, title: str, facts: dict[str, str], problems: Path, records: Path | None, gate: Path | None,
    adapters: Sequence[Path], evaluations: Sequence[Path], clean: Path | None = None, asked: Path | None = None,
) -> None:  # fmt: skip
    """Gather what the stages measured; nothing is computed anew."""
    trainings = [read_json(folder / "training.json") for folder in adapters]
    left_out = read_rows(problems / "left-out.jsonl")
    report = PlannerReport(
        title=title,
        facts=facts,
        evaluations=tuple(
            PlannerEvaluation.from_row(read_json(folder / "evaluation.json")) for folder in evaluations
        ),
        targets=read_json(records / "counts.json")["train"] if records else {},
        gate=read_json(gate / "gate.json") if gate else {},
        asked=read_json(asked / questions.COUNTS) if asked else {},
        losses=tuple(map(_loss, trainings)),
        curves=tuple(point for training in trainings for point in training.get("curves", [])),
        contamination=contamination.read(clean) if clean else None,
        left_out=tuple(
            f"{row['set']} row {row['row']}: {row['reason']}: {row['excerpt']}" for row in left_out
        ),
    )
    write_json(out / "report.json", report.model_dump(mode="json"))
    page = render(report) + "\n".join(overlap.lines(report.contamination))
    (out / "report.md").write_text(page, encoding="utf-8")


def _loss(training: dict[str, Any]) -> Loss:
    """One training's line: a supervised one or GRPO."""
    losses, validation = training["losses"], training.get("validation_losses") or []
    grpo = training.get("method") == "grpo"
    kept = training["questions"]["kept"] if grpo else training["records"]["kept"]
    return Loss(
        label="GRPO" if grpo else "warm start", records=kept, steps=training["steps"],
        train=losses[-1]["loss"] if losses else None, validation=validation[-1]["loss"] if validation else None,
        note="the GRPO loss says little; see the rewards" if grpo else "",
    )  # fmt: skip
