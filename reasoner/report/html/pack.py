"""Packs trajectories for the page: JSON, gzip, base64.

The index holds columns of small numbers for every trajectory; bodies lie in chunks that the page unpacks when it shows
or searches them. base64 has no `<`, so that no text of a model can end the element that holds it.
"""

import base64
import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from reasoner.report.html.trajectories import Collection

CHUNK = 500
"""Trajectories a chunk: one trace unpacks about 0.5 MB of text."""
LEVEL = 6
UNNAMED = "unnamed"
"""Stands for an empty word: the page's choice with the empty value means all."""
FACETS = ("outcome", "strategy", "reason", "arm", "split")


@dataclass(frozen=True, slots=True)
class Packed:
    """Texts for the page."""

    index: str
    chunks: tuple[str, ...]


def pack(collection: Collection) -> Packed:
    """The index and the chunks of all trajectories. Equal input gives equal bytes."""
    rows = collection.rows
    chunks = [
        packed([row.body for row in rows[start : start + CHUNK]]) for start in range(0, len(rows), CHUNK)
    ]
    return Packed(packed(_index(collection)), tuple(chunks))


def packed(value: Any) -> str:
    """JSON data as base64 of gzip. A lone surrogate, half a character of a model's text, becomes U+FFFD."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), LEVEL, mtime=0)).decode()


def unpacked(text: str) -> Any:
    """What `packed` was given, as JSON has it."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def _index(collection: Collection) -> dict[str, Any]:
    rows = collection.rows
    names: dict[str, list[str]] = {}
    columns: dict[str, list[int]] = {}
    for facet in FACETS:
        names[facet], columns[facet] = _coded(getattr(row, facet) or UNNAMED for row in rows)
    datasets, of_problem = _coded(p.dataset or UNNAMED for p in collection.problems)
    names["dataset"] = datasets
    names["extracted"], columns["extracted"] = _coded(row.extracted for row in rows)
    names["finish"], columns["finish"] = _coded(row.finish for row in rows)
    for number in ("problem", "tokens", "index"):
        columns[number] = [getattr(row, number) for row in rows]
    return {
        "rows": len(rows), "chunk": CHUNK, "names": names, "columns": columns,
        "problems": {
            "id": [p.id for p in collection.problems], "question": [p.question for p in collection.problems],
            "gold": [p.gold for p in collection.problems], "dataset": of_problem,
        },
        "prompts": [{"parts": list(p.parts), "exact": p.exact, "note": p.note} for p in collection.prompts],
        "flips": [
            {"name": f.name, "stages": list(f.stages), "rows": f.rows, "patterns": f.patterns}
            for f in collection.flips
        ],
    }  # fmt: skip


def _coded(values: Iterable[str]) -> tuple[list[str], list[int]]:
    """Distinct values in order of first appearance, and each value's number."""
    known: dict[str, int] = {}
    codes = [known.setdefault(value, len(known)) for value in values]
    return list(known), codes
