"""Completions for a stage: from the ledger, or made now by the run's engine or by several that share them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from reasoner.engines.protocol import Engine, EngineSettings
from reasoner.ledger.keys import Fingerprint
from reasoner.ledger.ledger import Ledger
from reasoner.ledger.owed import Completed, complete
from reasoner.records import GenerationRequest
from reasoner.shards.complete import complete_sharded
from reasoner.workbench import Workbench


def completed(
    bench: Workbench, requests: Sequence[GenerationRequest], *, ledger: Ledger, fingerprint: Fingerprint,
    engine: Callable[[], Engine], settings: EngineSettings | None, adapters: Mapping[str, Path] | None = None,
) -> Completed:  # fmt: skip
    """As `ledger.owed.complete`, and with `compute.engines` above 1 as `shards.complete.complete_sharded`.

    `settings` and `adapters` are those that `engine` starts with; None where that is not ours to start.
    """
    if bench.compute.engines > 1 and settings is not None:
        with bench.engines.without_engine():
            return complete_sharded(
                requests, ledger=ledger, fingerprint=fingerprint, settings=settings, adapters=adapters,
                engines=bench.compute.engines, work=bench.work, logs=bench.logs, on_progress=bench.child_progress,
                root=_meeting(bench),
            )  # fmt: skip
    return complete(
        requests, ledger=ledger, fingerprint=fingerprint, engine=engine, on_progress=bench.child_progress
    )


def _meeting(bench: Workbench) -> str | None:
    """Where the engines of this stage meet, if other machines may join them."""
    return f"{bench.home.shared_jobs}/{bench.work.name}" if bench.home.shared_jobs else None
