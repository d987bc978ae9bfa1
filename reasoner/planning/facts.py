"""What a finished artifact holds, for the estimates of the stages that read it: counts and mean lengths.

An artifact that stands for one that is not made yet says so in its manifest, with what is expected of it.
"""

from collections.abc import Callable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from reasoner.records import ArtifactRef, Strategy
from reasoner.store import open_ref, verify_ref
from reasoner.store.rows import iter_rows

LOOKED_AT = 200
"""Rows of which lengths are measured."""
EXPECTED = "expected"

Count = Callable[[str], int]


def facts_of(ref: ArtifactRef, count: Count) -> Mapping[str, Any]:
    """The facts of an artifact; empty for a kind that no estimate asks about. Raises ArtifactError."""
    folder, metadata = open_ref(ref), verify_ref(ref).metadata
    if EXPECTED in metadata:
        return dict(metadata[EXPECTED])
    readers: dict[str, Callable[[], dict[str, Any]]] = {
        "problems": lambda: problems(folder),
        "completions": lambda: completions(folder, metadata, count),
        "attempts": lambda: attempts(folder, metadata, count),
        "records": lambda: records(folder, count),
        "model": lambda: model(metadata, count),
    }
    return readers[ref.kind]() if ref.kind in readers else {}


def problems(folder: Path) -> dict[str, Any]:
    """Questions a split, and some of them."""
    splits = {p.stem: _lines(p) for p in sorted(folder.glob("*.jsonl")) if p.stem != "left-out"}
    train = folder / "train.jsonl"
    some = [row["question"] for row in islice(iter_rows(train), LOOKED_AT)] if train.is_file() else []
    return {"splits": splits, "questions": some}


def completions(folder: Path, metadata: Mapping[str, Any], count: Count) -> dict[str, Any]:
    """Rows, their mean length in tokens as the engine counted, the share of programs."""
    rows = list(islice(iter_rows(folder / "completions.jsonl"), LOOKED_AT))
    asked, tokens = metadata.get("asked"), metadata.get("tokens")
    if not asked or tokens is None:
        return {"rows": len(rows), **_share(rows)}
    return {"rows": asked, "new_tokens": tokens / asked, **_share(rows)}


def attempts(folder: Path, metadata: Mapping[str, Any], count: Count) -> dict[str, Any]:
    """The same of judged rows, and the share of those that are right."""
    found = list(islice(iter_rows(folder / "attempts.jsonl"), LOOKED_AT))
    number = int(metadata.get("attempts", len(found)))
    outcomes = metadata.get("outcomes", {})
    lengths = [count(str(row.get("text", ""))) for row in found]
    right = {"right": outcomes.get("correct", 0) / number} if number and outcomes else {}
    mean = {"new_tokens": sum(lengths) / len(lengths)} if lengths else {}
    return {"rows": number, **mean, **right, **_share(found)}


def _share(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The share of programs among some answers."""
    programs = sum(
        row.get("strategy") == Strategy.POT.value or str(row.get("text", "")).startswith(Strategy.POT.title)
        for row in rows
    )
    return {"programs": programs / len(rows)} if rows else {}


def records(folder: Path, count: Count) -> dict[str, Any]:
    """Records a split with mean tokens of question and solution."""
    train = folder / "train.jsonl"
    rows = list(islice(iter_rows(train), LOOKED_AT)) if train.is_file() else []
    found: dict[str, Any] = {s: _lines(folder / f"{s}.jsonl") for s in ("train", "validation")}
    for name in ("question", "solution"):
        texts = [str(row[name]) for row in rows if row.get(name)]
        if texts:
            found[f"{name}_tokens"] = sum(map(count, texts)) / len(texts)
    return found


def model(metadata: Mapping[str, Any], count: Count) -> dict[str, Any]:
    """How long a trained model answers: as the records that it was made from."""
    row = metadata.get("arguments", {}).get("records")
    if not row:
        return {}
    learnt = facts_of(ArtifactRef.from_row(row), count)
    return {"answer_tokens": learnt["solution_tokens"]} if "solution_tokens" in learnt else {}


def _lines(path: Path) -> int:
    return sum(1 for _ in iter_rows(path)) if path.is_file() else 0
