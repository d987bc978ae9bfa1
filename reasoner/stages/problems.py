"""Prepares the questions: load, check the golds, split, refuse contamination.

Writes `train.jsonl`, `validation.jsonl`, one `eval-NAME.jsonl` an evaluation set, and `left-out.jsonl`.
"""

from pathlib import Path
from typing import Any

from reasoner.config.data import DataConfig
from reasoner.errors import DataError
from reasoner.problems import check_contamination, load_problems, split_problems
from reasoner.records import Problem
from reasoner.store.rows import read_rows, write_rows

HELD_OUT = "held-out"


def prepare(out: Path, data: DataConfig, seed: int) -> dict[str, Any]:
    """Write the splits into `out`; returns the counts and fingerprints for the manifest."""
    loaded = {name: load_problems(source) for name, source in data.pool.items()}
    pool = list({p.id: p for part in loaded.values() for p in part.problems}.values())
    splits = split_problems(pool, data, seed)
    evaluation = {name: load_problems(source) for name, source in data.evaluation.items()}
    sets = {name: part.problems for name, part in evaluation.items()}
    if splits.get(HELD_OUT):
        sets[HELD_OUT] = splits[HELD_OUT]
    check_contamination([*splits["train"], *splits["validation"]], sets)
    if not splits["train"]:
        raise DataError("no training questions are left after the split; lower data.held_out or data.validation")
    for name in ("train", "validation"):
        write_rows(out / f"{name}.jsonl", [p.to_row() for p in splits[name]])
    for name, problems in sets.items():
        if not problems:
            raise DataError(f"evaluation set {name!r} has no questions")
        write_rows(out / f"eval-{name}.jsonl", [p.to_row() for p in problems])
    parts = {**loaded, **evaluation}
    left_out = [
        {"set": name, "row": row, "reason": reason, "excerpt": excerpt}
        for name, part in parts.items()
        for row, reason, excerpt in part.left_out
    ]
    write_rows(out / "left-out.jsonl", left_out)
    return {
        "counts": {"train": len(splits["train"]), "validation": len(splits["validation"]),
                   **{f"eval-{name}": len(problems) for name, problems in sets.items()}},
        "left_out": len(left_out),
        "sources": {name: part.fingerprint for name, part in parts.items()},
    }  # fmt: skip


def read(folder: Path, split: str) -> list[Problem]:
    """The problems of one split, or of the whole pool (`train` and `validation`) for `pool`."""
    names = ("train", "validation") if split == "pool" else (split,)
    return [Problem.from_row(row) for name in names for row in read_rows(folder / f"{name}.jsonl")]


def evaluation_sets(folder: Path) -> list[str]:
    """Names of the evaluation sets, in alphabetical order."""
    return sorted(path.stem.removeprefix("eval-") for path in folder.glob("eval-*.jsonl"))
