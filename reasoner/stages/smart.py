"""SMART's own stages: analysis, records of epoch 1 and of later epochs, evaluation of one set."""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasoner.config.smart import Epoch1Config, Epoch2Config, EvaluationConfig
from reasoner.errors import CollapseError
from reasoner.methods.smart import analysis, epoch1, epoch2
from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.selection import Selection
from reasoner.records import Problem
from reasoner.report.headline import headline
from reasoner.store.rows import write_rows

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
    config: Epoch2Config, seed: int, epoch: int,
) -> dict[str, Any]:  # fmt: skip
    """Records of a self-sampling epoch for both splits."""
    chosen = {}
    for split in SPLITS:
        ids = {p.id for p in problems[split]}
        first, second = ([a for a in turn if a.problem_id in ids] for turn in (turn1, turn2))
        chosen[split] = epoch2.records(problems[split], first, second, config, seed, epoch=epoch)
    return _write_records(out, chosen)


def second_turns(
    problems: Sequence[Problem], turn1: Sequence[Attempt], config: Epoch2Config, seed: int, epoch: int
) -> tuple[dict[str, list[tuple[str, str]]], dict[str, int]]:
    """Failed strategies and solutions by problem id, each a second turn to ask for, and the counts."""
    queue, counts = epoch2.turn2_queue(problems, turn1, config, seed, epoch=epoch)
    tried: dict[str, list[tuple[str, str]]] = {}
    for turn in queue:
        tried.setdefault(turn.problem_id, []).append((turn.tried[0], turn.tried_solutions[0]))
    return tried, counts


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
    out: Path, name: str, few_shot: Sequence[Attempt], answers: Sequence[Sequence[Attempt]],
    config: EvaluationConfig,
) -> dict[str, Any]:  # fmt: skip
    """Measure one set: the base few-shot a strategy, then every epoch; `evaluation.json` is a `HeadlineTable`."""
    policies = [(f"epoch {number}", attempts) for number, attempts in enumerate(answers, start=1)]
    table = headline(name, few_shot, policies, confidence=config.confidence)
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
