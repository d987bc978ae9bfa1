"""Evaluations in W&B: every number of some tables in the summary of one run."""

from collections.abc import Mapping
from typing import Any

from reasoner.tracking.run import Log, Tracking, tracked


def log_tables(tracking: Tracking | None, tables: Mapping[str, Any], log: Log) -> None:
    """Put every number of `tables` into the summary of the W&B run."""
    with tracked(tracking, log) as run:
        run.summarise(numbers(tables))


def numbers(value: Any, name: str = "") -> dict[str, float]:
    """Every number in nested mappings and lists, under names joined by `/`; a row's `label` names it in a list."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return {}
    if isinstance(value, int | float):
        return {name: float(value)}
    if isinstance(value, Mapping):
        items = [(str(key), part) for key, part in value.items()]
    else:
        items = [
            (str(p.get("label", i)) if isinstance(p, Mapping) else str(i), p) for i, p in enumerate(value)
        ]
    found: dict[str, float] = {}
    for key, part in items:
        found |= numbers(part, f"{name}/{key}" if name else key)
    return found
