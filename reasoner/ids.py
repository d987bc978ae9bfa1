"""Content hashes: the same content has the same id in every process and on every machine."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

CHUNK = 1 << 20


def canonical(value: Any) -> Any:
    """Plain JSON data for `value`: dataclasses, pydantic models, enums, tuples and sets become JSON types.

    Raises TypeError for anything else (a path, a function, an object): such a value has no content hash.
    """
    if value is None or isinstance(value, bool | int | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise TypeError(f"{value} has no canonical JSON form")
        return value
    if isinstance(value, Enum):
        return canonical(value.value)
    if hasattr(value, "content_id"):
        return canonical(value.content_id)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: canonical(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return canonical(value.model_dump())
    if isinstance(value, Mapping):
        return {str(k): canonical(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(v) for v in value]
    if isinstance(value, set | frozenset):
        return sorted((canonical(v) for v in value), key=lambda v: json.dumps(v, sort_keys=True))
    raise TypeError(f"{type(value).__name__} has no canonical JSON form")


def canonical_json(value: Any) -> str:
    """One string for equal content: sorted keys, no spaces, no NaN."""
    return json.dumps(
        canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def content_hash(value: Any, length: int = 64) -> str:
    """The first `length` hex digits of the sha256 of `value`'s canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode("utf-8", "surrogatepass")).hexdigest()[:length]


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes, read in 1 MiB pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as handle:
        while chunk := handle.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def derived_seed(*parts: Any) -> int:
    """A 31-bit seed from any content: the same parts give the same seed wherever and whenever they are used."""
    return int(content_hash(list(parts), 16), 16) % (2**31 - 1)
