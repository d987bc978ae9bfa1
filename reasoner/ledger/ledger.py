"""Every completion ever made, by request key: what is here is never generated again.

A folder of journals `0000.jsonl`, `0001.jsonl`, … with one writer a file: a second process that opens the
folder reads all of them and writes to another. Where a key occurs more than once, the first by file and place
counts, for every reader. The index holds places, not texts. Not covered: seeing what another process adds
meanwhile.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reasoner.errors import BusyError, InfrastructureError, UsageError
from reasoner.ids import content_hash
from reasoner.ledger.journal import Journal
from reasoner.ledger.lines import pack
from reasoner.process.locks import FileLock
from reasoner.records import Completion, GenerationRequest, Sampling
from reasoner.store.durable import make_folder

log = logging.getLogger(__name__)

SCHEMA = 1
OFFSET_BITS = 48
KEY = re.compile(r"[0-9a-f]{32}")
_ENTRY, _SHARED = b'{"key":"', b'{"shared":"'
_ID = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """A journaled completion with what is known of its request; `prompt` is None if that line was damaged."""

    key: str
    problem_id: str
    index: int
    seed: int
    prompt: str | None
    settings: dict[str, Any] | None
    """`sampling`, `adapter` and `add_special_tokens` of the request."""
    completion: Completion

    @property
    def sampling(self) -> Sampling | None:
        return Sampling.from_row(self.settings["sampling"]) if self.settings else None


class Ledger:
    """The journals in `folder`, opened for reading and for writing to one of them. Use it with `with`.

    Opening reads everything once. `readonly` takes no lock and cannot append.
    """

    def __init__(self, folder: str | Path, *, readonly: bool = False) -> None:
        self.folder = Path(folder)
        self._index: dict[bytes, int] = {}
        self._written: set[bytes] = set()
        self._journals: list[Journal] = []
        self._lock: FileLock | None = None
        self._own: Journal | None = None
        self.damaged = 0
        """Bad lines found in the middle of journals."""
        try:
            if not readonly:
                with opening_lock(self.folder):
                    make_folder(self.folder)
                    self._lock = self._lock_one()
            self._load()
        except OSError as error:
            self.close()
            raise InfrastructureError(f"cannot open the ledger {self.folder}: {error}") from error
        except BaseException:
            self.close()
            raise

    def __contains__(self, key: str) -> bool:
        return _packed(key) in self._index

    def __len__(self) -> int:
        return len(self._index)

    def get(self, key: str) -> Completion | None:
        """The completion of a key, or None if it is owed."""
        row = self._row(key)
        return None if row is None else _completion(row["completion"])

    def append(self, batch: Iterable[tuple[str, GenerationRequest, Completion]]) -> int:
        """Keep a batch of (key, request, completion) in one write, flushed on return; returns how many are
        new.

        A key that is there already keeps its first completion. Raises InfrastructureError when the disk
        refuses; then nothing of the batch is kept.
        """
        if self._own is None or self._lock is None or not self._lock.held:
            raise UsageError(f"the ledger {self.folder} is closed, read-only, or of the parent of this fork")
        lines: list[bytes] = []
        places: dict[bytes, int] = {}
        shared: set[bytes] = set()
        size = 0
        for key, request, completion in batch:
            name = _packed(key)
            if name in self._index or name in places:
                continue
            for line in self._shared_lines(request, shared):
                lines.append(line)
                size += len(line)
            places[name] = size
            lines.append(pack(_entry_row(key, request, completion)))
            size += len(lines[-1])
        if not places:
            return 0
        start = self._own.append(b"".join(lines))
        base = self._journals.index(self._own) << OFFSET_BITS
        for name, place in places.items():
            self._index[name] = base | (start + place)
        self._written |= shared
        return len(places)

    def entries(self) -> Iterator[Entry]:
        """Every completion that counts, with prompt and settings, file by file: for audits and re-scoring."""
        for number, journal in enumerate(self._journals):
            shared: dict[str, int] = {}
            for offset, body in journal.rows():
                if body.startswith(_SHARED):
                    shared[body[len(_SHARED) : len(_SHARED) + _ID].decode()] = offset
                elif self._index.get(_id_of(body) or b"") == number << OFFSET_BITS | offset:
                    yield self._entry(json.loads(body), journal, shared)

    def close(self) -> None:
        """Close the files and free the lock; may be called twice."""
        for journal in self._journals:
            journal.close()
        self._journals, self._own = [], None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _lock_one(self) -> FileLock:
        """Lock the first journal that nobody writes to."""
        for number in range(10_000):
            lock = FileLock(self.folder / f"{number:04d}.lock")
            try:
                lock.try_acquire()
            except BusyError:
                continue
            return lock
        raise InfrastructureError(f"{self.folder} has 10000 writers")

    def _load(self) -> None:
        own = self._lock.path.with_suffix(".jsonl") if self._lock else None
        paths = {*self.folder.glob("*.jsonl")} | ({own} if own else set())
        for number, path in enumerate(sorted(paths)):
            journal = Journal(path, writable=path == own)
            self._journals.append(journal)
            self._read(journal, number << OFFSET_BITS)
            if path == own:
                journal.cut_tail()
                self._own = journal

    def _read(self, journal: Journal, base: int) -> None:
        index, written = self._index, self._written
        for offset, body in journal.rows():
            name = _id_of(body)
            if name is None:
                log.warning("%s: the row at byte %d is of no known kind", journal.path, offset)
            elif body.startswith(_ENTRY):
                index.setdefault(name, base | offset)
            elif journal.writable:
                written.add(name)
        assert journal.scanned is not None
        self.damaged += journal.scanned.damaged

    def _row(self, key: str) -> dict[str, Any] | None:
        place = self._index.get(_packed(key))
        if place is None:
            return None
        body = self._journals[place >> OFFSET_BITS].read(place & ((1 << OFFSET_BITS) - 1))
        row = json.loads(body) if body is not None else None
        if row is None or row.get("key") != key:
            log.warning("%s: the completion %s was damaged after opening and is owed", self.folder, key)
            del self._index[_packed(key)]
            return None
        return dict(row)

    def _shared_lines(self, request: GenerationRequest, new: set[bytes]) -> Iterator[bytes]:
        for name, digest in (("prompt", _prompt_hash(request.prompt)), ("settings", _settings(request)[0])):
            packed = bytes.fromhex(digest)
            if packed not in self._written and packed not in new:
                new.add(packed)
                value = request.prompt if name == "prompt" else _settings(request)[1]
                yield pack({"shared": digest, name: value})

    def _entry(self, row: dict[str, Any], journal: Journal, shared: dict[str, int]) -> Entry:
        def look_up(name: str) -> Any:
            offset = shared.get(row[name])
            body = journal.read(offset) if offset is not None else None
            return json.loads(body).get(name) if body is not None else None

        return Entry(
            row["key"], row["problem_id"], row["index"], row["seed"],
            look_up("prompt"), look_up("settings"), _completion(row["completion"]),
        )  # fmt: skip


def opening_lock(folder: Path) -> FileLock:
    """Held while a writer opens the ledger in `folder`, and by whoever removes a ledger that nobody writes to."""
    return FileLock(folder.with_name(f".{folder.name}.lock"), timeout=None)


def _entry_row(key: str, request: GenerationRequest, completion: Completion) -> dict[str, Any]:
    return {
        "key": key,
        "problem_id": request.problem_id,
        "index": request.index,
        "seed": request.seed,
        "prompt": _prompt_hash(request.prompt),
        "settings": _settings(request)[0],
        "completion": completion.to_row(),
    }


# The samples of one prompt come together: hashing it again for each took most of the time of an append.
@lru_cache(maxsize=1024)
def _prompt_hash(prompt: str) -> str:
    return content_hash(prompt, _ID)


def _settings(request: GenerationRequest) -> tuple[str, dict[str, Any]]:
    """What requests have in common besides the prompt, with its hash."""
    return _hashed_settings(
        repr(request.sampling), request.sampling, request.adapter, request.add_special_tokens
    )


@lru_cache(maxsize=1024)
def _hashed_settings(
    text: str, sampling: Sampling, adapter: str, special: bool
) -> tuple[str, dict[str, Any]]:
    # `text` is in the cache's key because 1 and 1.0 are equal here but not in JSON.
    row = {
        "schema": SCHEMA,
        "sampling": sampling.to_row(),
        "adapter": adapter,
        "add_special_tokens": special,
    }
    return content_hash(row, _ID), row


def _completion(row: dict[str, Any]) -> Completion:
    row["token_ids"], row["logprobs"] = tuple(row["token_ids"]), tuple(row["logprobs"])
    return Completion.from_row(row)


def _packed(key: str) -> bytes:
    if not KEY.fullmatch(key):
        raise UsageError(f"{key!r} is not a request key (32 hex digits)")
    return bytes.fromhex(key)


def _id_of(body: bytes) -> bytes | None:
    """The key of an entry or the hash of a shared value, packed, or None."""
    for head in (_ENTRY, _SHARED):
        if body.startswith(head):
            try:
                return bytes.fromhex(body[len(head) : len(head) + _ID].decode())
            except ValueError:
                return None
    return None
