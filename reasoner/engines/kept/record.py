"""What a home folder knows of a kept engine, and how it is ended for good.

Processes are named by pid and start (reasoner.process.owner), so that a number which was given to another process is
never taken for an engine's.
"""

import contextlib
import json
import os
import signal
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from reasoner.engines.protocol import EngineSettings
from reasoner.errors import EngineError
from reasoner.hardware import visible_devices
from reasoner.home import Home
from reasoner.ids import content_hash
from reasoner.process.owner import owner_is_dead, owner_tag, parse_tag
from reasoner.process.waiting import wait_until
from reasoner.store.durable import replace_file

END_SECONDS = 10.0
"""How long the keeper may take to end its engine before everything is killed."""
KILL_SECONDS = 20.0
"""How long killed processes may take to be gone: a driver frees a card's memory first."""


@dataclass(frozen=True, slots=True)
class Record:
    """A kept engine."""

    keeper: str
    """The process that ends all the others, as `owner_tag` names it."""
    engine: str
    identity: str
    kind: str
    model: str
    socket: str
    log: str
    since: float
    """When it was started, in seconds since the epoch."""

    @property
    def pid(self) -> int:
        """The engine's process."""
        return parse_tag(self.engine)[0]

    @property
    def about(self) -> str:
        """The engine in a few words, for a message."""
        return f"{self.kind} engine for {self.model} (process {self.pid})"

    @property
    def well(self) -> bool:
        """Whether all of it is alive: an engine without its keeper is about to be ended by its guard."""
        return not (owner_is_dead(self.keeper) or owner_is_dead(self.engine))

    @property
    def gone(self) -> bool:
        """Whether every process of the engine has ended, and with it its memory."""
        return owner_is_dead(self.keeper) and owner_is_dead(self.engine)

    def end(self) -> None:
        """End the engine and wait until its processes are gone. Raises EngineError where one can't be killed."""
        tree = {self.keeper, self.engine, *_below(self.keeper)}
        _signal({self.keeper}, signal.SIGTERM)
        if not wait_until(lambda: all(map(owner_is_dead, tree)), END_SECONDS):
            tree |= _below(self.keeper)
            _signal(tree, signal.SIGKILL)
            if not wait_until(lambda: all(map(owner_is_dead, tree)), KILL_SECONDS):
                pids = ", ".join(str(parse_tag(tag)[0]) for tag in tree if not owner_is_dead(tag))
                raise EngineError(f"the {self.about} can't be ended; look at its processes: {pids}")
        remove_socket(Path(self.socket))


def remove_socket(path: Path) -> None:
    """Take the socket and its folder away; nothing else may lie there."""
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
        path.parent.rmdir()


def slot_name() -> str:
    """The name of the one kept engine of this host (and of this container) on the cards that this process sees."""
    return f"{_host()}-{content_hash(visible_devices(), 8)}"


def record_path(home: Home, name: str) -> Path:
    return home.engines / f"{name}.json"


def lock_path(home: Home, name: str) -> Path:
    return home.locks / f"engine-{name}.lock"


def slots_here(home: Home) -> list[str]:
    """The names under which this host may have kept engines, whatever their cards."""
    return sorted(path.stem for path in home.engines.glob(f"{_host()}-*.json"))


def read(path: Path) -> Record | None:
    """The record, or None where there is none that can be read."""
    try:
        return Record(**json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def write(path: Path, record: Record) -> None:
    """Put the record in its place at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, [json.dumps(asdict(record), indent=1).encode() + b"\n"])


def new_record(
    keeper: int, engine: int, identity: str, settings: EngineSettings, socket: Path, log: Path
) -> Record:
    """The record of an engine that has just been started."""
    return Record(
        owner_tag(keeper), owner_tag(engine), identity, settings.kind, str(settings.model_path), str(socket),
        str(log), time.time(),
    )  # fmt: skip


def _host() -> str:
    _, _, _, namespace, host = parse_tag(owner_tag())
    return f"{host}-{namespace}"


def _below(keeper: str) -> set[str]:
    """Everything that the keeper has started, whatever its group or session."""
    if owner_is_dead(keeper):
        return set()
    with contextlib.suppress(psutil.Error):
        return {
            owner_tag(child.pid) for child in psutil.Process(parse_tag(keeper)[0]).children(recursive=True)
        }
    return set()


def _signal(tags: set[str], number: signal.Signals) -> None:
    for tag in tags:
        if not owner_is_dead(tag):
            with contextlib.suppress(ProcessLookupError):
                os.kill(parse_tag(tag)[0], number)
