"""The engines of a flow run: one at a time, since there is one GPU slot."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from reasoner.engines.protocol import Engine, EngineSettings
from reasoner.engines.remote import RemoteEngine
from reasoner.engines.start import open_engine
from reasoner.engines.wire import settings_row
from reasoner.errors import EngineError
from reasoner.ids import content_hash
from reasoner.process.child import INTERRUPT_GRACE


def settings_digest(settings: EngineSettings) -> str:
    """The identity of an engine: equal settings can share one. A model counts by its folder's resolved
    path.
    """
    return content_hash(
        {**settings_row(settings), "model_path": str(Path(settings.model_path).resolve())}, 16
    )


class EnginePool:
    """Keeps the engine that was wanted last. A context manager: the engine ends with it.

    Stages that may run at the same time take turns with `lease`; `acquire` is for a caller that holds the
    GPU slot already.
    """

    def __init__(self, logs: Path, *, idle_seconds: float | None = 300.0) -> None:
        """Logs are written to `logs/engine-<digest>.log`; an engine unused for `idle_seconds` gives its
        memory back.
        """
        self._logs = Path(logs)
        self._idle_seconds = idle_seconds
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
            self.release_gpu()
            log = self._logs / f"engine-{digest}.log"
            self._engine = open_engine(settings, log=log, idle_seconds=self._idle_seconds)
            self._digest = digest
            return self._engine

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

    def release_gpu(self, *, at_once: bool = False) -> None:
        """Close the engine, if there is one. A generation that runs in another thread gets an EngineError.

        `at_once`: this process was told to end, so the engine is told to, not asked.
        """
        with self._lock:
            engine, self._engine, self._digest = self._engine, None, ""
            if isinstance(engine, RemoteEngine) and at_once:
                engine.close(grace=INTERRUPT_GRACE)
            elif engine is not None:
                engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._closed = True
            self.release_gpu(at_once=kind is not None and not issubclass(kind, Exception))
