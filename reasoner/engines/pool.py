"""The engines of a flow run: one at a time, since there is one GPU slot."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from reasoner.engines.kept.slot import KeptSlot
from reasoner.engines.protocol import Engine, EngineSettings
from reasoner.engines.remote import RemoteEngine
from reasoner.engines.start import MODEL_KINDS, open_engine
from reasoner.engines.wire import settings_digest
from reasoner.errors import EngineError
from reasoner.process.child import INTERRUPT_GRACE


class EnginePool:
    """Keeps the engine that was wanted last. A context manager: the engine ends with it, or, where the pool has a
    slot for it, waits there for the next process.

    Stages that may run at the same time take turns with `lease`; `acquire` is for a caller that holds the
    GPU slot already.
    """

    def __init__(
        self, logs: Path, *, idle_seconds: float | None = 300.0, kept: KeptSlot | None = None
    ) -> None:
        """Logs are written to `logs/engine-<digest>.log`; an engine unused for `idle_seconds` (0 or None: no
        limit) gives its memory back. With `kept` the engine is the one of that slot.
        """
        self._logs = Path(logs)
        self._idle_seconds = idle_seconds or None
        self._kept = kept
        self._slot = threading.RLock()
        self._lock = threading.RLock()
        self._engine: Engine | None = None
        self._digest = ""
        self._closed = False

    def acquire(self, settings: EngineSettings) -> Engine:
        """The live engine if it has these settings; otherwise it is closed and the wanted one started.

        The engine stays the pool's: don't close it. Raises as `open_engine`.
        """
        digest = settings_digest(settings)
        with self._lock:
            if self._closed:
                raise EngineError("this engine pool is closed")
            if self._engine is not None and digest == self._digest and getattr(self._engine, "usable", True):
                return self._engine
            self._close_engine()
            self._engine = self._open(settings, self._logs / f"engine-{digest}.log")
            self._digest = digest
            return self._engine

    def _open(self, settings: EngineSettings, log: Path) -> Engine:
        kept = self._kept
        if kept is None or settings.kind not in MODEL_KINDS:
            return open_engine(settings, log=log, idle_seconds=self._idle_seconds)
        return RemoteEngine(
            settings,
            log=kept.log_of(settings),
            idle_seconds=self._idle_seconds,
            launch=lambda: kept.open(settings, note=log),
        )

    @contextmanager
    def lease(self, settings: EngineSettings) -> Iterator[Engine]:
        """The engine for these settings, to this thread alone until the block ends; others wait."""
        with self._slot:
            yield self.acquire(settings)

    @contextmanager
    def without_engine(self) -> Iterator[None]:
        """The GPU without an engine on it, until the block ends: for training."""
        with self._slot:
            self.release_gpu()
            yield

    def release_gpu(self) -> None:
        """Close the engine, if there is one, and one that a stage before has left. A generation that runs in
        another thread gets an EngineError.
        """
        with self._lock:
            self._close_engine()
            if self._kept is not None:
                self._kept.clear()

    def _close_engine(self, grace: float | None = None) -> None:
        engine, self._engine, self._digest = self._engine, None, ""
        if isinstance(engine, RemoteEngine):
            engine.close(grace=grace)
        elif engine is not None:
            engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """A process that was told to end tells its engine to end, too; otherwise a kept one stays for the next."""
        told_to_end = kind is not None and not issubclass(kind, Exception)
        with self._lock:
            self._closed = True
            try:
                if self._kept is not None and isinstance(self._engine, RemoteEngine) and not told_to_end:
                    self._engine.leave(self._kept.idle_seconds)
                self._close_engine(INTERRUPT_GRACE if told_to_end else None)
            finally:
                if self._kept is not None:
                    self._kept.give_back()
