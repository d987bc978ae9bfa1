"""Reads what W&B wrote offline: the summaries and histories in a folder's .wandb files."""

import json
from pathlib import Path
from typing import Any


def records(folder: Path) -> list[Any]:
    """Every record of every run under `folder`, as W&B's protocol buffers."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    found = []
    for path in sorted(folder.rglob("run-*.wandb")):
        store = DataStore()
        store.open_for_scan(str(path))
        while True:
            data = store.scan_data()
            if data is None:
                break
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            found.append(record)
    return found


def _items(update: Any) -> dict[str, Any]:
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in update}


def summary(folder: Path) -> dict[str, Any]:
    """The last value of every summary key."""
    found: dict[str, Any] = {}
    for record in records(folder):
        if record.WhichOneof("record_type") == "summary":
            found |= _items(record.summary.update)
    return found


def history(folder: Path) -> list[dict[str, Any]]:
    """Each logged step."""
    return [_items(r.history.item) for r in records(folder) if r.WhichOneof("record_type") == "history"]


def runs(folder: Path) -> list[Any]:
    """The runs that were begun."""
    return [r.run for r in records(folder) if r.WhichOneof("record_type") == "run"]
