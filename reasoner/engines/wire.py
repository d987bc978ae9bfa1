"""Messages between a program and its engine's process: a length of 4 bytes, then that many bytes of JSON.

One side of a Unix socket is one `Wire`. Reading and writing may happen in different threads; two threads
must not write at once.
"""

import contextlib
import json
import select
import socket
import struct
from pathlib import Path
from typing import Any

from reasoner import errors
from reasoner.engines.protocol import EngineSettings
from reasoner.errors import EngineError, ReasonerError
from reasoner.ids import content_hash
from reasoner.records import Completion, GenerationRequest, Sampling

LENGTH = struct.Struct(">I")
LIMIT = 1 << 30
"""No message is longer; a larger length means that the two sides lost step."""


class Wire:
    """Sends and receives one JSON object at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._file = connection.makefile("rb", buffering=1 << 16)

    def send(self, message: dict[str, Any]) -> None:
        """Raises OSError when the other side is gone."""
        data = json.dumps(message, separators=(",", ":")).encode()
        if len(data) > LIMIT:
            raise EngineError(f"a message of {len(data)} bytes is too long for an engine")
        self._connection.sendall(LENGTH.pack(len(data)) + data)

    def receive(self) -> dict[str, Any] | None:
        """The next message, or None when the other side is gone."""
        try:
            head = self._file.read(LENGTH.size)
            if len(head) < LENGTH.size:
                return None
            (length,) = LENGTH.unpack(head)
            if length > LIMIT:
                raise EngineError(f"the engine's process announced a message of {length} bytes")
            data = self._file.read(length)
        except (OSError, ValueError):  # ValueError: closed by another thread
            return None
        return json.loads(data) if len(data) == length else None

    def limit(self, seconds: float | None) -> None:
        """From now on the other side counts as gone when it is silent for so long (None: never)."""
        self._connection.settimeout(seconds)

    @property
    def hung_up(self) -> bool:
        """Whether the other side is gone, or this one closed. What it sent before may still be unread."""
        try:
            poll = select.poll()
            poll.register(self._connection, select.POLLRDHUP)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        """End the conversation; a `receive` that waits in another thread returns None."""
        for end in (lambda: self._connection.shutdown(socket.SHUT_RDWR), self._connection.close):
            with contextlib.suppress(OSError):
                end()


def settings_row(settings: EngineSettings) -> dict[str, Any]:
    """Plain data of the settings."""
    return {
        "kind": settings.kind,
        "model_path": str(settings.model_path),
        "dtype": settings.dtype,
        "seed": settings.seed,
        "adapters": settings.adapters,
        "max_lora_rank": settings.max_lora_rank,
        "options": dict(settings.options),
    }


def settings_digest(settings: EngineSettings) -> str:
    """The identity of an engine: equal settings can share one. A model counts by its folder's resolved
    path.
    """
    return content_hash(
        {**settings_row(settings), "model_path": str(Path(settings.model_path).resolve())}, 16
    )


def settings_from_row(row: dict[str, Any]) -> EngineSettings:
    """What `settings_row` wrote."""
    return EngineSettings(**{**row, "model_path": Path(row["model_path"])})


def request_from_row(row: dict[str, Any]) -> GenerationRequest:
    """The request whose `to_row()` came over the wire."""
    return GenerationRequest.from_row({**row, "sampling": Sampling.from_row(row["sampling"])})


def completion_from_row(row: dict[str, Any]) -> Completion:
    """The completion whose `to_row()` came over the wire."""
    lists = {"token_ids": tuple(row["token_ids"]), "logprobs": tuple(row["logprobs"])}
    return Completion.from_row({**row, **lists})


def error_row(error: BaseException) -> dict[str, str]:
    """Plain data of an error."""
    return {"type": type(error).__name__, "message": str(error)}


def error_from_row(row: dict[str, str], note: str = "") -> ReasonerError:
    """The error that the other side raised; one from outside our tree becomes an EngineError with `note`."""
    known = getattr(errors, row["type"], None)
    if isinstance(known, type) and issubclass(known, ReasonerError) and not issubclass(known, EngineError):
        return known(row["message"])
    prefix = "" if row["type"] == EngineError.__name__ else f"{row['type']}: "
    return EngineError(f"{prefix}{row['message']}{note}")
