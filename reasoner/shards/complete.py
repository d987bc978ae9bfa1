"""`ledger.owed.complete` by several engines: the same completions in the same ledger, made in shards."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from reasoner.engines.protocol import EngineSettings
from reasoner.errors import EngineError
from reasoner.ledger.keys import Fingerprint, request_keys
from reasoner.ledger.ledger import Ledger
from reasoner.ledger.owed import Completed
from reasoner.records import GenerationRequest
from reasoner.shards.hosts import run_workers
from reasoner.shards.job import Job, done_in_order, jobs_at, model_stamp
from reasoner.shards.place import Place

SHARDS_AN_ENGINE = 4
SMALLEST, LARGEST = 16, 4096
"""Requests in a shard. Large, since an engine is not full at a shard's end; small, so that all end at about once."""


def shard_size(owed: int, engines: int) -> int:
    """Requests in a shard when `engines` share `owed` of them."""
    return max(SMALLEST, min(LARGEST, -(-owed // (engines * SHARDS_AN_ENGINE))))


def complete_sharded(
    requests: Sequence[GenerationRequest], *, ledger: Ledger, fingerprint: Fingerprint, settings: EngineSettings,
    engines: int, work: Path, logs: Path, root: str | None = None, adapters: Mapping[str, Path] | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None, **worker: Any,
) -> Completed:  # fmt: skip
    """Completions of all `requests`, from the ledger or made now by `engines` workers on this host.

    They meet under `root` (a folder or fsspec URL, by default in `work`), where workers of other machines may join.
    `adapters`, by the names in the requests, go there as files.
    The ledger gets the completions in the order of the requests, once each. Raises EngineError as `complete` does; what
    was recorded is then in the ledger.
    """
    place = Place(root or work / "shards")
    if place.remote is not None:
        place.require_exclusive()
    for job in jobs_at(place):  # of a run that was killed
        merge(job, ledger)
    keys = request_keys(requests, fingerprint)
    owed = {k: r for k, r in zip(keys, requests, strict=True) if k not in ledger}
    total = len(set(keys))
    found = total - len(owed)

    done = found

    def tell(facts: dict[str, Any]) -> None:
        nonlocal done
        done += int(facts.get("made", 0))
        if on_progress is not None:
            on_progress({"done": min(done, total), "total": total, "found": found})

    tell({})
    if owed:
        size = worker.pop("shard_size", 0) or shard_size(len(owed), engines)
        stamp = model_stamp(settings.model_path) if root else ""
        job = Job.publish(place, settings, owed, shard_size=size, fingerprint=stamp, adapters=adapters or {})
        engines = min(engines, job.count)
        try:
            run_workers(job, engines, logs, work, tell, **worker)
        finally:
            merge(job, ledger)
    if place.folder is not None:
        shutil.rmtree(place.folder, ignore_errors=True)
    completions = [ledger.get(key) for key in keys]
    if any(completion is None for completion in completions):
        raise EngineError("a completion was damaged on the disk: run the same command again")
    return Completed([c for c in completions if c is not None], len(owed), found)


def merge(job: Job, ledger: Ledger) -> int:
    """Keep what the job's journals hold in `ledger`, in the order of the requests; returns how many were new."""
    new = 0
    for shard in job.shards():
        new += ledger.append(done_in_order([shard.read()]))
    return new
