"""Makes the completions that a ledger lacks, and only those.

The same command after a crash makes what is owed; more samples a problem make only the new ones; with nothing
owed no engine starts.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from reasoner.engines.protocol import Engine
from reasoner.errors import EngineError
from reasoner.ledger.keys import Fingerprint, request_keys
from reasoner.ledger.ledger import Ledger
from reasoner.records import Completion, GenerationRequest


@dataclass(frozen=True, slots=True)
class Completed:
    """Completions in the order of the requests, and how many distinct ones were `made` now or `found`."""

    completions: list[Completion]
    made: int
    found: int


class LazyEngine:
    """Starts an engine when it is first called and closes it at the end of its `with` block.

    with LazyEngine(lambda: open_engine(settings)) as engine:
        complete(requests, ledger=ledger, fingerprint=fingerprint, engine=engine)
    """

    def __init__(self, start: Callable[[], Engine]) -> None:
        self._start = start
        self._engine: Engine | None = None

    @property
    def started(self) -> bool:
        return self._engine is not None

    def __call__(self) -> Engine:
        if self._engine is None:
            self._engine = self._start()
        return self._engine

    def close(self) -> None:
        """Close the engine if it was started; a later call starts another."""
        if self._engine is not None:
            engine, self._engine = self._engine, None
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def complete(
    requests: Sequence[GenerationRequest],
    *,
    ledger: Ledger,
    fingerprint: Fingerprint,
    engine: Callable[[], Engine],
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    batch: int = 64,
    flush_seconds: float = 2.0,
) -> Completed:
    """Completions of all `requests`, from the ledger or made now and journaled as they finish.

    `fingerprint` is the model's, or a mapping from adapter name ("" is the bare base) to fingerprint.
    `engine` is called only if something is owed; closing it is the caller's (see `LazyEngine`). Equal
    requests are made once. A batch is flushed at `batch` completions or, when the next one arrives, after
    `flush_seconds`. `on_progress` gets `done`, `total` and `found` (distinct completions) at each flush.

    Raises EngineError, after everything else is kept, if the engine answered some requests with an error,
    left some unanswered, or died; the same call again makes what is then owed.
    """
    requests = list(requests)
    keys = request_keys(requests, fingerprint)
    owed: dict[str, GenerationRequest] = {}
    for key, request in zip(keys, requests, strict=True):
        if key not in ledger and key not in owed:
            owed[key] = request
    total = len(set(keys))
    maker = _Maker(ledger, owed, total, on_progress, batch, flush_seconds)
    maker.report()
    if owed:
        maker.make(engine())
    completions = []
    for key in keys:
        completion = ledger.get(key)
        if completion is None:
            raise EngineError(f"the completion {key} was damaged on the disk: run the same command again")
        completions.append(completion)
    return Completed(completions, len(owed), total - len(owed))


class _Maker:
    """One pass over what is owed."""

    def __init__(
        self,
        ledger: Ledger,
        owed: Mapping[str, GenerationRequest],
        total: int,
        on_progress: Callable[[dict[str, Any]], None] | None,
        batch: int,
        flush_seconds: float,
    ) -> None:
        self.ledger, self.on_progress = ledger, on_progress
        self.keys, self.requests = list(owed), list(owed.values())
        self.total, self.found = total, total - len(owed)
        self.batch, self.flush_seconds = batch, flush_seconds
        self.pending: list[tuple[str, GenerationRequest, Completion]] = []
        self.made = self.failed = 0
        self.first_error = ""
        self.flushed = time.monotonic()

    def make(self, engine: Engine) -> None:
        answered: set[int] = set()
        try:
            for i, completion in engine.generate(self.requests):
                if not 0 <= i < len(self.keys) or i in answered:
                    raise EngineError(f"the engine answered request {i} of {len(self.keys)} twice or unasked")
                answered.add(i)
                self.take(i, completion)
        finally:
            # Also when the engine died: what it had finished is kept.
            self.flush()
        unanswered = len(self.keys) - len(answered)
        if self.failed or unanswered:
            detail = f" The first: {self.first_error}" if self.first_error else ""
            raise EngineError(
                f"{self.failed} of {len(self.keys)} requests failed in the engine and {unanswered} were not "
                f"answered; the others are kept. Run the same command again to make these.{detail}"
            )

    def take(self, i: int, completion: Completion) -> None:
        if completion.finish == "error":
            self.failed += 1
            self.first_error = self.first_error or completion.text[:200]
            return
        self.pending.append((self.keys[i], self.requests[i], completion))
        waited = time.monotonic() - self.flushed
        if len(self.pending) >= self.batch or waited >= self.flush_seconds:
            self.flush()

    def flush(self) -> None:
        self.flushed = time.monotonic()
        if self.pending:
            pending, self.pending = self.pending, []
            self.ledger.append(pending)
            self.made += len(pending)
            self.report()

    def report(self) -> None:
        if self.on_progress is not None:
            self.on_progress({"done": self.found + self.made, "total": self.total, "found": self.found})
