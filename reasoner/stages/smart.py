"""SMART's own stages: analysis, the records of every kind, when to stop, evaluation of one set."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasoner.config.smart import ControlConfig, Epoch1Config, Epoch2Config, EvaluationConfig
from reasoner.errors import CollapseError, DataError
from reasoner.methods.smart import analysis, epoch1, epoch2
from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.controls import given_records, rft_records, shuffled_labels
from reasoner.methods.smart.convergence import Convergence, convergence
from reasoner.methods.smart.records import SolutionRecord
from reasoner.methods.smart.selection import Selection
from reasoner.records import Problem, Strategy
from reasoner.report.headline import Answers, headline
from reasoner.store.rows import read_rows, write_rows

SPLITS = ("train", "validation")


def write_json(path: Path, value: Any) -> None:
    """Equal content, equal bytes."""
    path.write_text(json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False) + "\n")


def analyse(out: Path, attempts: Sequence[Attempt]) -> dict[str, Any]:
    """How the strategies overlap, and whether choosing between them can help: `analysis.json`."""
    found = analysis.analyse(attempts)
    write_json(out / "analysis.json", found.to_row())
    return {"problems": found.problems, "best_single": found.best_single, "sentence": found.sentence}


def records_epoch1(
    out: Path,
    problems: dict[str, list[Problem]],
    attempts: Sequence[Attempt],
    config: Epoch1Config,
    seed: int,
) -> dict[str, Any]:
    """Records of epoch 1 for both splits."""
    chosen = {}
    for split in SPLITS:
        ids = {p.id for p in problems[split]}
        own = [a for a in attempts if a.problem_id in ids]
        chosen[split] = epoch1.records(problems[split], own, config, seed)
    return _write_records(out, chosen)


def records_later(
    out: Path, problems: dict[str, list[Problem]], turn1: Sequence[Attempt], turn2: Sequence[Attempt],
    shown: Sequence[Attempt], config: Epoch2Config, seed: int, epoch: int,
) -> dict[str, Any]:  # fmt: skip
    """Records of a self-sampling epoch for both splits; `shown` are few-shot attempts, for `disagreement_only`."""
    contested = analysis.contested(shown) if config.disagreement_only else None

    def chosen(split: str) -> Selection:
        ids = {p.id for p in problems[split]}
        first, second = ([a for a in turn if a.problem_id in ids] for turn in (turn1, turn2))
        return epoch2.records(problems[split], first, second, config, seed, epoch=epoch, contested=contested)

    return _write_records(out, {split: chosen(split) for split in SPLITS})


def records_rejected(
    out: Path, problems: dict[str, list[Problem]], attempts: Sequence[Attempt], strategy: Strategy,
    config: ControlConfig, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """Rejection sampling for both splits: correct solutions of one strategy."""

    def chosen(split: str) -> Selection:
        ids = {p.id for p in problems[split]}
        own = [a for a in attempts if a.problem_id in ids]
        return rft_records(
            problems[split], own, strategy, seed, keep=config.keep, max_records=config.max_records
        )

    return _write_records(out, {split: chosen(split) for split in SPLITS})


def records_given(
    out: Path, problems: dict[str, list[Problem]], max_records: int | None, seed: int
) -> dict[str, Any]:
    """The solutions that came with the questions, for both splits."""
    return _write_records(out, {s: given_records(problems[s], seed, max_records=max_records) for s in SPLITS})


def shuffle_labels(out: Path, records: Path, seed: int) -> dict[str, Any]:
    """The records of `records` with the strategies' names exchanged inside each split."""
    facts = json.loads((records / "counts.json").read_text())
    chosen = {}
    for split in SPLITS:
        given = [SolutionRecord.from_row(row) for row in read_rows(records / f"{split}.jsonl")]
        chosen[split] = Selection(shuffled_labels(given, seed), facts[split]["counts"])
    return _write_records(out, chosen)


def only_strategy(config: ControlConfig, analysis_folder: Path) -> Strategy:
    """The strategy of a control that has one: the configured one, or the best few-shot strategy on the pool."""
    if config.strategy != "best":
        return Strategy(config.strategy)
    found = analysis.Analysis.from_row(json.loads((analysis_folder / "analysis.json").read_text()))
    if found.best_single is None:
        raise DataError(
            "control.strategy=best: no question has a scored attempt of every strategy; name one, such as cot"
        )
    return Strategy(found.best_single)


def judge_convergence(
    out: Path, epochs: Sequence[Sequence[Attempt]], min_delta: float, max_epochs: int
) -> dict[str, Any]:
    """Whether another epoch follows: `convergence.json`."""
    found = convergence(epochs, min_delta, max_epochs)
    write_json(out / "convergence.json", found.to_row())
    return {"reason": found.reason, "best": found.best}


def read_convergence(folder: Path) -> Convergence:
    """What `judge_convergence` left."""
    return Convergence.from_row(json.loads((folder / "convergence.json").read_text()))


def require_strategies(out: Path, attempts: Sequence[Attempt], config: EvaluationConfig) -> dict[str, Any]:
    """CollapseError where too many of a policy's responses name no strategy: self-sampling would be noise."""
    invalid = sum(a.strategy is None for a in attempts)
    if attempts and invalid / len(attempts) > config.max_invalid_prefix:
        example = next(a.text for a in attempts if a.strategy is None)
        raise CollapseError(
            f"{invalid} of {len(attempts)} responses name no strategy (evaluation.max_invalid_prefix="
            f"{config.max_invalid_prefix}), for example {example[:60]!r}; train longer or with a higher train.lr"
        )
    facts = {"responses": len(attempts), "invalid_prefix": invalid}
    write_json(out / "gate.json", facts)
    return facts


def evaluate(
    out: Path, name: str, few_shot: Sequence[Attempt], answered: Sequence[Answers], config: EvaluationConfig
) -> dict[str, Any]:
    """Measure one set: the base few-shot, then every policy; `evaluation.json` is a `HeadlineTable`."""
    table = headline(name, few_shot, answered, confidence=config.confidence)
    write_json(out / "evaluation.json", table.model_dump(mode="json"))
    return {"set": name, "accuracy": {row.label: row.accuracy.to_row() for row in table.rows}}


def _write_records(out: Path, chosen: dict[str, Selection]) -> dict[str, Any]:
    for split, selection in chosen.items():
        write_rows(out / f"{split}.jsonl", [record.to_row() for record in selection.records])
    facts: dict[str, Any] = {
        split: {"counts": selection.counts, "strategies": selection.by_strategy,
                "kinds": dict(Counter(r.kind for r in selection.records))}
        for split, selection in chosen.items()
    }  # fmt: skip
    write_json(out / "counts.json", facts)
    return facts
