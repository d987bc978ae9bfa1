"""Prefect's cached results as files: one a stage key, holding the reference to its artifact.

Written by Prefect through the serializer of `tasks.stage`; read here without it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from reasoner.home import Home
from reasoner.records import ArtifactRef


def kept_result(home: Home, key: str) -> ArtifactRef | None:
    """The reference that was kept for a stage's key; None if there is none, or the stage failed."""
    return _read(home.results / key)


def kept_results(home: Home) -> Iterator[tuple[str, ArtifactRef | None]]:
    """Every key with its reference; None for a failed stage and for a file that cannot be read."""
    for path in sorted(home.results.glob("*")):
        if path.is_file() and not path.name.startswith("."):
            yield path.name, _read(path)


def _read(path: Path) -> ArtifactRef | None:
    try:
        row = json.loads(json.loads(path.read_bytes())["result"])
        return ArtifactRef(row["kind"], row["digest"], row["uri"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
