"""The one engine that a home folder keeps on this host's cards: found, started, and cleared away.

A client holds the slot's lock for as long as it lives, so that clients come one after another; the kernel frees it
when they die. The record is read and written under that lock alone.
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from reasoner.engines.engine_process import socket_folder
from reasoner.engines.kept.identity import identity
from reasoner.engines.kept.process import KeptProcess
from reasoner.engines.kept.record import (
    END_SECONDS,
    Record,
    lock_path,
    new_record,
    read,
    record_path,
    remove_socket,
    slot_name,
    slots_here,
    write,
)
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.wire import Wire, settings_digest
from reasoner.errors import BusyError, EngineError
from reasoner.home import Home
from reasoner.process.environment import child_environment, python_path
from reasoner.process.locks import FileLock
from reasoner.process.log_tail import last_words

OWNER = "REASONER_WORKER"
"""The variable that names the worker (as `owner_tag` does) with which a kept engine ends."""
WELCOME_SECONDS = 10.0
"""An idle engine answers at once; one that does not is not well."""
POLL_SECONDS = 0.05


class KeptSlot:
    """The slot of the cards that this process sees. Call it from one thread at a time."""

    def __init__(
        self, home: Home, owner: str, idle_seconds: float, say: Callable[[str], None] = print
    ) -> None:
        """An engine that is left waits `idle_seconds` for the next client, and no longer than `owner` lives.
        `say` is told what is waited for.
        """
        self.idle_seconds = idle_seconds
        self._owner, self._say = owner, say
        self._logs = home.path / "logs"
        self._record = record_path(home, slot_name())
        self._lock = FileLock(lock_path(home, slot_name()))

    def log_of(self, settings: EngineSettings) -> Path:
        """Where a kept engine with these settings writes to; it belongs to no run, so this is the home folder's."""
        return self._logs / f"engine-{settings_digest(settings)}.log"

    def open(self, settings: EngineSettings, note: Path) -> KeptProcess:
        """The kept engine's process if it may be used for these settings; else it is ended and a new one started,
        which has no engine in it yet. Which of both, and the log, is written to `note`.
        """
        self._take()
        wanted = identity(replace(settings, model_path=Path(settings.model_path).resolve()))
        found = read(self._record)
        if found is not None and found.identity == wanted and (process := self._connect(found)):
            _append(note, f"uses the kept {found.about}; log: {found.log}")
            return process
        self.clear()
        process = self._start(settings, wanted)
        _append(note, f"started the {process.record.about}; log: {process.record.log}")
        return process

    def clear(self) -> None:
        """End the kept engine, if there is one, and wait until its memory is free."""
        self._take()
        found = read(self._record)
        if found is not None:
            found.end()
        self._record.unlink(missing_ok=True)

    def give_back(self) -> None:
        """Let the next client in."""
        self._lock.release()

    def _take(self) -> None:
        if self._lock.held:
            return
        try:
            self._lock.try_acquire()
        except BusyError as error:
            self._say(f"another stage has the engine of this machine: {error}")
            self._lock.acquire()

    def _connect(self, record: Record) -> KeptProcess | None:
        """The connection to an idle engine, or None where it does not answer."""
        log_start = _size(Path(record.log))
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        wire = Wire(connection)
        wire.limit(WELCOME_SECONDS)
        with suppress(OSError):
            connection.connect(record.socket)
            if record.well and (wire.receive() or {}).get("pid") == record.pid:
                wire.limit(None)
                return KeptProcess(wire, record, log_start)
        wire.close()
        return None

    def _start(self, settings: EngineSettings, wanted: str) -> KeptProcess:
        log, path = self.log_of(settings), socket_folder() / "engine"
        log.parent.mkdir(parents=True, exist_ok=True)
        log_start = _size(log)
        with log.open("ab") as output:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "reasoner.engines.kept.keeper", path, log, self._owner],
                env=child_environment({"PYTHONPATH": python_path()}), stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True,
            )  # fmt: skip
        try:
            wire = Wire(_reach(path, keeper))
            welcome = wire.receive()
            if welcome is None:
                raise EngineError(f"the engine's process ended at once. {last_words(log, log_start)}")
            record = new_record(keeper.pid, welcome["pid"], wanted, settings, path, log)
            write(self._record, record)
        except BaseException:
            keeper.terminate()
            with suppress(subprocess.TimeoutExpired):
                keeper.wait(END_SECONDS)
            keeper.kill()
            remove_socket(path)
            raise
        return KeptProcess(wire, record, log_start)


def clear_all(home: Home) -> list[Record]:
    """End every kept engine of a home folder on this host that nobody uses; returns those that were alive."""
    ended = []
    for name in slots_here(home):
        with suppress(BusyError), FileLock(lock_path(home, name)):
            path = record_path(home, name)
            record = read(path)
            if record is not None and not record.gone:
                record.end()
                ended.append(record)
            path.unlink(missing_ok=True)
    return ended


def _reach(path: Path, keeper: "subprocess.Popen[bytes]") -> socket.socket:
    """A connection to the engine's process as soon as it listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    while True:
        try:
            connection.connect(str(path))
            return connection
        except OSError:
            if keeper.poll() is not None:
                connection.close()
                raise EngineError(f"the engine's process ended with status {keeper.returncode}") from None
            time.sleep(POLL_SECONDS)


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def kept_slot(home: Home, idle_seconds: float, say: Callable[[str], None]) -> KeptSlot | None:
    """The slot of a stage under a worker that ends what it leaves; None where nobody would, or nothing is kept."""
    owner = os.environ.get(OWNER)
    return KeptSlot(home, owner, idle_seconds, say) if owner and idle_seconds > 0 else None
