"""The report of a run: `report.md` for people, `report.json` for everything that shows it again."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasoner.methods.smart.analysis import Analysis
from reasoner.report import contamination as overlap
from reasoner.report.data import Curve, HeadlineTable, Loss, RecordSet, RunReport
from reasoner.report.markdown import render_markdown
from reasoner.stages import contamination
from reasoner.stages.smart import write_json
from reasoner.store.rows import read_rows


def write(
    out: Path, title: str, facts: dict[str, str], problems: Path, analysis: Path, evaluations: Sequence[Path],
    trained: Sequence[tuple[str, Path | None, Path]], failed: Sequence[str] = (),
    clean: Path | None = None,
) -> None:  # fmt: skip
    """Gather what the stages measured; nothing is computed anew. `trained` are (label, records or None, adapter).

    `failed` says which trainings did not come about, and why.
    """
    left_out = read_rows(problems / "left-out.jsonl")
    report = RunReport(
        title=title,
        facts=facts,
        tables=tuple(
            HeadlineTable.model_validate(_json(folder / "evaluation.json")) for folder in evaluations
        ),
        few_shot=Analysis.from_row(_json(analysis / "analysis.json")),
        records=tuple(_records(label, records) for label, records, _ in trained if records is not None),
        curves=tuple(curve for label, _, adapter in trained if (curve := _curve(label, adapter)) is not None),
        contamination=contamination.read(clean) if clean else None,
        losses=tuple(_loss(label, adapter) for label, _, adapter in trained),
        left_out=(
            *(f"not trained: {sentence}" for sentence in failed),
            *(f"{row['set']} row {row['row']}: {row['reason']}: {row['excerpt']}" for row in left_out),
        ),
    )
    write_json(out / "report.json", report.to_json())
    (out / "report.md").write_text(render_markdown(report) + "\n".join(overlap.lines(report.contamination)))


def read(folder: Path) -> RunReport:
    """A report that `write` left."""
    return RunReport.model_validate(_json(folder / "report.json"))


def _records(label: str, folder: Path) -> RecordSet:
    facts = _json(folder / "counts.json")["train"]
    return RecordSet(label=label, counts=facts["counts"], by_strategy=facts["strategies"])


def _loss(label: str, folder: Path) -> Loss:
    facts = _json(folder / "training.json")
    if facts.get("method") == "grpo":
        note = f"GRPO on {facts['questions']['kept']} questions; the loss of a step says little"
        return Loss(label=label, steps=facts["steps"], train=facts["losses"][-1]["loss"], note=note)
    train, validation = facts["losses"], facts["validation_losses"]
    return Loss(
        label=label, records=facts["records"]["kept"], steps=facts["steps"],
        train=train[-1]["loss"] if train else None, validation=validation[-1]["loss"] if validation else None,
        note=f"adapter of step {facts['exported_step']}",
    )  # fmt: skip


def _curve(label: str, folder: Path) -> Curve | None:
    """How GRPO went; None for other trainings."""
    points = _json(folder / "training.json").get("curves")
    return Curve(label=label, points=points) if points else None


def _json(path: Path) -> Any:
    return json.loads(path.read_text())
