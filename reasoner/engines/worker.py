"""The process of an engine: `python -m reasoner.engines.worker SOCKET`. Started by reasoner.engines.engine_process.

It connects to the Unix socket, reads the settings, starts the engine and answers commands one at a time. (One that
serves several clients, one after another, is reasoner.engines.kept.listener.) The main thread runs the engine; one
thread reads the socket, so that a cancellation is seen in the middle of a generation and the end of the client at any
time; one thread writes, so that a slow consumer never holds up the batch.

Messages in: `settings`, `load_adapter`, `unload_adapter`, `sleep`, `wake`, `generate` (then `requests` … and
`end`), `cancel`, `close`, `leave`.
Messages out: `ready`, `done` (pairs of index and completion), `finished`, `error`, `left`.
"""

import os
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.engines.protocol import EngineSettings, PolicyEngine
from reasoner.engines.start import build_engine
from reasoner.engines.wire import Wire, error_row, request_from_row, settings_digest, settings_from_row
from reasoner.errors import EngineError
from reasoner.records import GenerationRequest

BATCH = 64
"""The most completions in one message."""


def end_now() -> None:
    """End at once: nothing here is worth saving, since completions live with the parent.

    What this process has started is ended by its guard (reasoner.process.guard).
    """
    os._exit(1)


@dataclass(frozen=True, slots=True)
class Resting:
    """An engine between two clients: without adapters, and it has never slept."""

    engine: PolicyEngine
    settings: EngineSettings
    idle_seconds: float
    """How long it waits for the next one."""


class Worker:
    """Serves an engine to one client, by default one that it starts for it."""

    def __init__(self, wire: Wire, resting: Resting | None = None) -> None:
        self._wire = wire
        self._resting = resting
        self._adapters: set[str] = set()
        self._slept = False
        self._inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._cancelled = -1
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._writer = threading.Thread(target=self._write, daemon=True)

    def run(self) -> Resting | None:
        """Serve until the client closes (None) or leaves the engine to another. An error while starting is told
        to it and ends the service.
        """
        self._reader.start()
        self._writer.start()
        left = None
        try:
            settings = settings_from_row(self._inbox.get()["settings"])
            engine = self._engine(settings)
        except BaseException as error:
            traceback.print_exc()
            self._outbox.put({"op": "error", "error": error_row(error)})
        else:
            self._outbox.put({"op": "ready"})
            idle_seconds = self._serve(engine)
            left = None if idle_seconds is None else Resting(engine, settings, idle_seconds)
        self._outbox.put({"op": "quit"})
        self._writer.join(timeout=10)
        return left

    def _engine(self, settings: EngineSettings) -> PolicyEngine:
        if self._resting is None:
            return build_engine(settings)
        if settings_digest(self._resting.settings) != settings_digest(settings):
            raise EngineError("this engine runs with other settings")
        return self._resting.engine

    def _serve(self, engine: PolicyEngine) -> float | None:
        """Answer commands; for how many seconds the engine is to wait for another client, or None if it ended."""
        commands: dict[str, Callable[[PolicyEngine, dict[str, Any]], dict[str, Any]]] = {
            "load_adapter": self._load_adapter,
            "unload_adapter": self._unload_adapter,
            "sleep": self._sleep,
            "wake": self._wake,
            "generate": self._generate,
        }
        while (message := self._inbox.get())["op"] not in ("close", "leave"):
            call = message.get("call", -1)
            try:
                reply = commands[message["op"]](engine, message)
            except Exception as error:
                traceback.print_exc()
                reply = {"op": "error", "error": error_row(error)}
            self._outbox.put({**reply, "call": call})
            if getattr(engine, "dead", False):
                return None  # vLLM's own engine process has died: the client must see this one end, too
        if message["op"] == "leave" and not self._slept:
            self._put_to_rest(engine)
            self._outbox.put({"op": "left"})
            return float(message["idle_seconds"])
        engine.close()
        return None

    def _put_to_rest(self, engine: PolicyEngine) -> None:
        """As a fresh engine, for whoever comes next. An error here ends the process: nobody gets a half-tidied one."""
        try:
            for name in self._adapters:
                engine.unload_adapter(name)
        except Exception:
            traceback.print_exc()
            end_now()

    def _load_adapter(self, engine: PolicyEngine, message: dict[str, Any]) -> dict[str, Any]:
        engine.load_adapter(message["name"], Path(message["path"]))
        self._adapters.add(message["name"])
        return {"op": "finished"}

    def _unload_adapter(self, engine: PolicyEngine, message: dict[str, Any]) -> dict[str, Any]:
        engine.unload_adapter(message["name"])
        self._adapters.discard(message["name"])
        return {"op": "finished"}

    def _sleep(self, engine: PolicyEngine, message: dict[str, Any]) -> dict[str, Any]:
        self._slept = (
            True  # not shown on a card yet that it then answers as a fresh one, so nobody gets it next
        )
        engine.sleep()
        return {"op": "finished"}

    def _wake(self, engine: PolicyEngine, message: dict[str, Any]) -> dict[str, Any]:
        engine.wake()
        return {"op": "finished"}

    def _generate(self, engine: PolicyEngine, message: dict[str, Any]) -> dict[str, Any]:
        call = message["call"]
        # All are taken in before the engine starts: a failed generation leaves none of them in the inbox.
        completions = engine.generate(list(self._requests()), logprobs=message["logprobs"])
        for i, completion in completions:
            self._outbox.put({"op": "done", "call": call, "done": [[i, completion.to_row()]]})
            if self._cancelled >= call:
                completions.close()  # type: ignore[attr-defined]
                break
        return {"op": "finished"}

    def _requests(self) -> Iterator[GenerationRequest]:
        while (message := self._inbox.get())["op"] != "end":
            if message["op"] != "requests":
                raise EngineError(f"expected requests, not {message['op']!r}")
            yield from map(request_from_row, message["requests"])

    def _read(self) -> None:
        while (message := self._wire.receive()) is not None:
            if message["op"] == "cancel":
                self._cancelled = message["call"]
                continue
            self._inbox.put(message)
            if message["op"] == "leave":
                return  # what follows is the client's end, which is no alarm
        end_now()

    def _write(self) -> None:
        try:
            pending = self._outbox.get()
            while pending["op"] != "quit":
                following = self._gather(pending["done"]) if pending["op"] == "done" else None
                self._wire.send(pending)
                pending = following or self._outbox.get()
        except OSError:
            end_now()

    def _gather(self, done: list[Any]) -> dict[str, Any] | None:
        """Add completions that wait already to `done`; return the first message that is none."""
        while len(done) < BATCH:
            try:
                message = self._outbox.get_nowait()
            except queue.Empty:
                return None
            if message["op"] != "done":
                return message
            done.extend(message["done"])
        return None


def be_ready() -> None:
    """Set what every process of an engine needs before it imports anything of a model."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a model is a folder; nothing here needs the network


def end_well() -> None:
    """End with status 0, without waiting for threads that vLLM and torch leave."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def main(path: str) -> None:
    """Connect to the parent's socket and serve it."""
    be_ready()
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    Worker(Wire(connection)).run()
    end_well()


if __name__ == "__main__":
    main(sys.argv[1])
