"""Data sets of the Hugging Face Hub, at a commit, or a local folder in the same layout.

Covers what `datasets` can load without running code of the repository. The commit that was read is recorded.
With no network (or `HF_HUB_OFFLINE=1`) the copy in the local cache is used.
"""

import re
from pathlib import Path
from typing import Any

from reasoner.config.data import SourceConfig
from reasoner.errors import DataError
from reasoner.problems.table import Table

COMMIT = re.compile(r"[0-9a-f]{40}")


def read_hub(source: SourceConfig) -> Table:
    """The rows of one split; raises DataError in a line where it can't be reached, found or used."""
    import datasets
    import httpx
    from huggingface_hub.errors import HfHubHTTPError

    failures = (
        OSError,
        ValueError,
        RuntimeError,
        HfHubHTTPError,
        httpx.HTTPError,
        datasets.exceptions.DatasetsError,
    )

    try:
        builder = datasets.load_dataset_builder(source.path, source.config, revision=source.revision)
        commit = _commit(source, builder.hash)
        builder.download_and_prepare()
        data = builder.as_dataset(split=source.split)
    except failures as error:
        raise DataError(_explained(source, error)) from error
    fingerprint = {
        "kind": "hub",
        "path": source.path if commit else Path(source.path).name,
        "config": source.config,
        "split": source.split,
        "revision": commit,
    }
    return Table.of(enumerate(data, 1), fingerprint)


def _commit(source: SourceConfig, found: Any) -> str | None:
    """The commit that `datasets` read, or None for a local folder.

    Without network `datasets` falls back to whatever it has cached, which may be another commit than asked
    for.
    """
    commit = found if isinstance(found, str) and COMMIT.fullmatch(found) else None
    wanted = source.revision
    if wanted and COMMIT.fullmatch(wanted) and commit != wanted:
        raise DataError(
            f"data set {source.name}: {source.path} at {wanted[:12]} is not in the local cache "
            f"(it has {str(commit)[:12]}) and the Hub can't be reached"
        )
    return commit


def _explained(source: SourceConfig, error: Exception) -> str:
    """One line: what failed, and what to do about it."""
    if isinstance(error, DataError):
        return str(error)
    lines = str(error).strip().splitlines() or [type(error).__name__]
    text = lines[0].rstrip(". ")
    offline = isinstance(error, ConnectionError) or "offline mode" in str(error).lower()
    if offline:
        advice = f"with no network, set the set's `path` to a local file ({source.name}.path=FILE.jsonl)"
    elif "doesn't exist" in text or "gated" in text or "Couldn't find" in text:
        advice = "check its id, or set HF_TOKEN if it is private or gated"
    else:
        advice = "check its `config`, `split` and `revision`"
    return f"data set {source.name}: {text}; {advice}"
