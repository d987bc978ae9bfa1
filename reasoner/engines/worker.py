"""The process of an engine: `python -m reasoner.engines.worker SOCKET`. Started by reasoner.engines.remote.

It connects to the Unix socket, reads the settings, starts the engine and answers commands one at a time.
The main thread runs the engine; one thread reads the socket, so that a cancellation is seen in the middle
of a generation and the end of the parent at any time; one thread writes, so that a slow consumer never
holds up the batch.

Messages in: `settings`, `load_adapter`, `unload_adapter`, `sleep`, `wake`, `generate` (then `requests` … and
`end`), `cancel`, `close`.
Messages out: `ready`, `done` (pairs of index and completion), `finished`, `error`.
"""

import os
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reasoner.engines.protocol import PolicyEngine
from reasoner.engines.start import build_engine
from reasoner.engines.wire import Wire, error_row, request_from_row, settings_from_row
from reasoner.errors import EngineError
from reasoner.records import GenerationRequest

BATCH = 64
"""The most completions in one message."""


def end_now() -> None:
    """End at once: nothing here is worth saving, since completions live with the parent.

    What this process has started is ended by its guard (reasoner.process.guard).
    """
    os._exit(1)


class Worker:
    """Serves one engine to one parent."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._inbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._cancelled = -1
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._writer = threading.Thread(target=self._write, daemon=True)

    def run(self) -> None:
        """Serve until the parent closes. An error while starting is told to the parent and ends the
        process.
        """
        self._reader.start()
        self._writer.start()
        try:
            engine = build_engine(settings_from_row(self._inbox.get()["settings"]))
        except BaseException as error:
            traceback.print_exc()
            self._outbox.put({"op": "error", "error": error_row(error)})
        else:
            self._outbox.put({"op": "ready"})
            self._serve(engine)
        self._outbox.put({"op": "quit"})
        self._writer.join(timeout=10)

    def _serve(self, engine: PolicyEngine) -> None:
        commands: dict[str, Callable[[PolicyEngine, dict[str, Any]], dict[str, Any]]] = {
            "load_adapter": self._load_adapter,
            "unload_adapter": self._unload_adapter,
            "sleep": self._sleep,
            "wake": self._wake,
            "generate": self._generate,
        }
        while (message := self._inbox.get())["op"] != "close":
            call = message.get("call", -1)
            try:
                reply = commands[message["op"]](engine, message)
            except Exception as error:
                traceback.print_exc()
                reply = {"op": "error", "error": error_row(error)}
            self._outbox.put({**reply, "call": call})
            if getattr(engine, "dead", False):
                return  # vLLM's own engine process has died: the parent must see this one end, too
        engine.close()

    def _load_adapter(self, engine: PolicyEngine, message: dict[str, Any]) -> dict[str, Any]:
        engine.load_adapter(message["name"], Path(message["path"]))
        return {"op": "finished"}

    def _unload_adapter(self, engine: PolicyEngine, message: dict[str, Any]) -> dict[str, Any]:
        engine.unload_adapter(message["name"])
        return {"op": "finished"}

    def _sleep(self, engine: PolicyEngine, message: dict[str, Any]) -> dict[str, Any]:
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
            else:
                self._inbox.put(message)
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


def main(path: str) -> None:
    """Connect to the parent's socket and serve it."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a model is a folder; nothing here needs the network
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    Worker(Wire(connection)).run()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # vLLM and torch leave threads that would hold the exit up


if __name__ == "__main__":
    main(sys.argv[1])
