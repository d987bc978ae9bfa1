"""An engine in a process of its own: its memory goes back when it ends, and its crash is an error here, not
the end.

The process ends with this one, however this one ends, unless it is left to the next client (reasoner.engines.kept).
Requests are sent at once, completions are yielded as they come. With `idle_seconds` an unused process ends, and is
started again (with the adapters that it had) by the next call.
"""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from reasoner.engines.engine_process import EngineProcess, RunningEngine
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.wire import completion_from_row, error_from_row, settings_row
from reasoner.errors import EngineError, InfrastructureError
from reasoner.process.child import INTERRUPT_GRACE
from reasoner.records import Completion, GenerationRequest

CHUNK = 256
"""Requests in one message."""
ROOT_CAUSE = ("root cause", "Engine core initialization failed")
"""vLLM says this when the reason stands in the log only."""


class RemoteEngine:
    """The Engine protocol over a socket. Call it from one thread; `close` may come from another."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        log: Path,
        idle_seconds: float | None = None,
        devices: str | None = None,
        launch: Callable[[], RunningEngine] | None = None,
    ) -> None:
        """Start the engine and wait until it is ready. `launch` brings its process, by default a new one that
        writes to `log` and uses the cards `devices` (as CUDA_VISIBLE_DEVICES names them; None: all that are visible).

        Raises ConfigurationError and ModelError as the engine does, and EngineError, which names model,
        kind, cause and log, for any other reason.
        """
        self.settings = settings
        self.log = Path(log)
        self._idle_seconds = idle_seconds
        self._adapters: dict[str, Path] = {}
        self._calls = 0
        self._active: int | None = None
        self._closed = False
        self._launch = launch or (lambda: EngineProcess(self.log, devices))
        self._process: RunningEngine | None = None
        self._timer: threading.Timer | None = None
        self._lock = threading.RLock()
        self._ready()
        self._rest()

    @property
    def pid(self) -> int | None:
        """The process, or None while there is none (idle or closed)."""
        process = self._process
        return process.pid if process else None

    @property
    def usable(self) -> bool:
        """False once the engine was closed or its process died; an idle engine is usable."""
        process = self._process
        return not self._closed and (process is None or process.alive)

    def load_adapter(self, name: str, path: Path) -> None:
        """As Engine.load_adapter. Errors are the engine's own."""
        with self._lock:
            process = self._ready()
            self._ask(process, {"op": "load_adapter", "name": name, "path": str(Path(path).resolve())})
            self._adapters[name] = Path(path).resolve()
            self._rest()

    def unload_adapter(self, name: str) -> None:
        """As PolicyEngine.unload_adapter."""
        self._tell({"op": "unload_adapter", "name": name})
        self._adapters.pop(name, None)

    def sleep(self) -> None:
        """As PolicyEngine.sleep."""
        self._tell({"op": "sleep"})

    def wake(self) -> None:
        """As PolicyEngine.wake."""
        self._tell({"op": "wake"})

    def generate(
        self, requests: Iterable[GenerationRequest], *, logprobs: bool = False
    ) -> Iterator[tuple[int, Completion]]:
        """As Engine.generate. Closing the iterator early cancels the rest; the engine stays usable."""
        with self._lock:
            process = self._ready()
            call = self._active = self._next_call()
        finished = False
        try:
            self._send_requests(process, call, requests, logprobs)
            while True:
                message = self._receive(process)
                if message.get("call") != call:
                    continue  # the rest of a cancelled generation
                if message["op"] == "done":
                    for i, row in message["done"]:
                        yield i, completion_from_row(row)
                    continue
                finished = True
                if message["op"] == "error":
                    raise error_from_row(message["error"], f" (log: {self.log})")
                return
        finally:
            with self._lock:
                self._active = None
                if not finished and not self._closed and process.alive:
                    with contextlib.suppress(OSError):
                        process.wire.send({"op": "cancel", "call": call})
                self._rest()

    def close(self, *, grace: float | None = None) -> None:
        """End the process and everything that it started. A generation in another thread gets an
        EngineError. With `grace` it is not asked first: SIGTERM, and SIGKILL after so many seconds.
        """
        process, active = self._end_use()
        if process:
            process.close(polite=not active and grace is None, grace=grace)

    def leave(self, idle_seconds: float) -> None:
        """Close this client; a kept process waits `idle_seconds` for another, any other ends. So does one that
        is generating.
        """
        process, active = self._end_use()
        if process and active:
            process.close(polite=False)
        elif process:
            process.leave(idle_seconds)

    def _end_use(self) -> tuple[RunningEngine | None, bool]:
        """The process, which nothing here uses any more, and whether it is generating."""
        with self._lock:
            self._closed = True
            self._stop_timer()
            process, self._process = self._process, None
            return process, self._active is not None

    def _next_call(self) -> int:
        self._calls += 1
        return self._calls

    def _ready(self) -> RunningEngine:
        """The running process; starts one when there is none."""
        self._stop_timer()
        if self._closed:
            raise EngineError(f"the {self.settings.kind} engine is closed")
        if self._active is not None:
            raise EngineError("this engine is generating; finish or close that iterator first")
        if self._process is None:
            self._process = self._start()
        if not self._process.alive:
            raise EngineError(self._process.death())
        return self._process

    def _start(self) -> RunningEngine:
        process: RunningEngine | None = None
        try:
            process = self._launch()
            process.wire.send({"op": "settings", "settings": settings_row(self.settings)})
            message = self._receive(process)
            if message["op"] == "error":
                raise error_from_row(message["error"])
            for name, path in self._adapters.items():
                self._ask(process, {"op": "load_adapter", "name": name, "path": str(path)})
        except BaseException as error:
            told_to_end = not isinstance(error, Exception)
            if process:
                process.close(polite=False, grace=INTERRUPT_GRACE if told_to_end else None)
            if not isinstance(error, InfrastructureError | OSError):
                raise
            raise EngineError(self._why_no_start(str(error), process)) from error
        return process

    def _why_no_start(self, cause: str, process: RunningEngine | None) -> str:
        if process and any(words in cause for words in ROOT_CAUSE):
            causes = [line for line in process.last_lines(200) if "Error: " in line and not _is_vague(line)]
            cause = causes[-1] if causes else cause
        first = " ".join(cause.split())[:600]
        which = f"the {self.settings.kind} engine for {self.settings.model_path}"
        return f"{which} failed to start: {first} (log: {self.log})"

    def _tell(self, message: dict[str, Any]) -> None:
        """Have the engine carry out one command."""
        with self._lock:
            self._ask(self._ready(), message)
            self._rest()

    def _ask(self, process: RunningEngine, message: dict[str, Any]) -> None:
        """Send a command and wait for its end; raises what the engine raised."""
        call = self._next_call()
        try:
            process.wire.send({**message, "call": call})
        except OSError:
            raise EngineError(process.death()) from None
        while (reply := self._receive(process)).get("call") != call:
            continue
        if reply["op"] == "error":
            raise error_from_row(reply["error"], f" (log: {self.log})")

    def _send_requests(
        self, process: RunningEngine, call: int, requests: Iterable[GenerationRequest], logprobs: bool
    ) -> None:
        rows: list[dict[str, Any]] = []
        try:
            process.wire.send({"op": "generate", "call": call, "logprobs": logprobs})
            try:
                for request in requests:
                    rows.append(request.to_row())
                    if len(rows) == CHUNK:
                        process.wire.send({"op": "requests", "requests": rows})
                        rows = []
                process.wire.send({"op": "requests", "requests": rows})
            finally:
                process.wire.send(
                    {"op": "end"}
                )  # also when `requests` raised: the engine must not wait for more
        except OSError:
            raise EngineError(self._gone(process)) from None

    def _receive(self, process: RunningEngine) -> dict[str, Any]:
        message = process.wire.receive()
        if message is None:
            raise EngineError(self._gone(process))
        return message

    def _gone(self, process: RunningEngine) -> str:
        return f"the {self.settings.kind} engine was closed" if self._closed else process.death()

    def _rest(self) -> None:
        """Start the clock that ends an unused process."""
        if self._idle_seconds is None or self._closed or self._process is None:
            return
        self._stop_timer()
        self._timer = threading.Timer(self._idle_seconds, self._end_idle)
        self._timer.daemon = True
        self._timer.start()

    def _stop_timer(self) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _end_idle(self) -> None:
        with self._lock:
            if (
                self._timer is not threading.current_thread()
                or self._active is not None
                or self._process is None
            ):
                return  # it was used in the meantime
            process, self._process = self._process, None
            process.close()


def _is_vague(line: str) -> bool:
    return any(words in line for words in ROOT_CAUSE)
