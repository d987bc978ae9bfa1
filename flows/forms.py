"""The parameters of the flows, as Prefect's run form shows and its server checks them.

`settings` is a form of every key of a configuration, all optional: what is filled in counts like a dotted override.
The server refuses a wrong type, an unknown key and anything that has the shape of a secret before it stores it.
"""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import WithJsonSchema

from reasoner.config.base import Section
from reasoner.redaction import SHAPES

SHAPE = "|".join(f"(?:{shape.pattern.removeprefix('(?i)')})" for shape in SHAPES.values())
NO_SECRET = {"not": {"type": "string", "pattern": SHAPE}}
DROPPED = ("default", "required", "title")

Overrides = Annotated[
    list[str] | None,
    WithJsonSchema({
        "type": "array", "items": {"type": "string", **NO_SECRET}, "title": "Overrides",
        "description": "Dotted overrides such as `train.lr=1e-5` or `data=gsm8k`; they count after the settings",
    }),
]  # fmt: skip
"""Dotted overrides. Never a secret: parameters stand in the server's database."""


def settings_schema(section: type[Section]) -> dict[str, Any]:
    """JSON schema of a configuration in which every key may be left out; references are written out."""
    whole = section.model_json_schema(mode="validation")
    form = _written_out(whole, whole.get("$defs", {}))
    form["title"] = "Settings"
    form["description"] = "What shall differ from the named configuration; what is left empty stays as it is"
    return form


def as_overrides(settings: Mapping[str, Any] | None, prefix: str = "") -> list[str]:
    """`{"train": {"lr": 1e-5}}` as `["train.lr=1e-05"]`; None means that a key was left empty."""
    found: list[str] = []
    for name, value in (settings or {}).items():
        if isinstance(value, Mapping) and value:
            found += as_overrides(value, f"{prefix}{name}.")
        elif value is not None:
            found.append(f"{prefix}{name}={_in_hydra(value)}")
    return found


def _written_out(part: Any, known: Mapping[str, Any]) -> Any:
    if isinstance(part, list):
        return [_written_out(each, known) for each in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        beside = {name: value for name, value in part.items() if name != "$ref"}
        part = {**known[part["$ref"].rsplit("/", 1)[-1]], **beside}
    found = {}
    for name, value in part.items():
        if name == "properties":  # names of keys, one of which may be called `default`
            found[name] = {key: _written_out(inner, known) for key, inner in value.items()}
        elif name not in (*DROPPED, "$defs", "discriminator"):
            found[name] = _written_out(value, known)
    if found.get("additionalProperties") is True:
        found["additionalProperties"] = NO_SECRET
    return {**found, **NO_SECRET} if found.get("type") == "string" and "enum" not in found else found


def _in_hydra(value: Any) -> str:
    """A value in the grammar of Hydra's overrides."""
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, list | tuple):
        return f"[{','.join(_in_hydra(each) for each in value)}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_in_hydra(each)}" for name, each in value.items()) + "}"
    return json.dumps(value)
