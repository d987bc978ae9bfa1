"""A generation that several workers share: its requests in shards, and a journal a shard that can only grow.

    job.json               engine settings, model, adapters' names, number of shards
    adapters/<name>/…      an adapter's two files
    0007/requests          the requests of shard 7 with their ledger keys, one a line
    0007/lease/…           who works at it (`lease`)
    0007/done/0000 …       its journal: completions in numbered pieces
    failed/<worker>        why a worker ended

A piece is created under the number after the last one that its writer has read, and a number can be created once: a
worker that was thought dead and wakes up cannot add to a journal that another has gone on with. So no key is recorded
twice, whatever the clocks say, and what is recorded is never lost.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.engines.adapters import CONFIG, WEIGHTS, check_adapter
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.wire import completion_from_row, request_from_row, settings_from_row, settings_row
from reasoner.errors import DataError
from reasoner.ids import content_hash, file_hash
from reasoner.ledger.lines import body_of, pack
from reasoner.records import Completion, GenerationRequest
from reasoner.shards.place import Place

JOB = "job.json"
ADAPTER_FILES = (CONFIG, WEIGHTS)


class LostLeaseError(Exception):
    """Another worker has gone on with this shard."""


@dataclass
class Shard:
    """One shard at `place`. `read` it before use."""

    place: Place
    number: int
    requests: dict[str, GenerationRequest] = field(default_factory=dict)
    """By ledger key, in order."""
    done: dict[str, Completion] = field(default_factory=dict)
    pieces: int = 0

    def read(self) -> "Shard":
        """Read the requests and the journal as it is now. Raises DataError if it is damaged."""
        if not self.requests:
            for row in _rows(self.place.read("requests") or b"", f"{self.place.uri}/requests"):
                self.requests[row["key"]] = request_from_row(row["request"])
        for name in self.place.names("done")[self.pieces :]:
            if int(name) != self.pieces:
                raise DataError(
                    f"{self.place.uri}/done/{self.pieces:04d} is missing; remove this job's folder"
                )
            for row in _rows(self.place.read(f"done/{name}") or b"", f"{self.place.uri}/done/{name}"):
                self.done[row["key"]] = completion_from_row(row["completion"])
            self.pieces += 1
        return self

    def owed(self) -> list[str]:
        """The keys that have no completion yet."""
        return [key for key in self.requests if key not in self.done]

    def append(self, found: Mapping[str, Completion]) -> None:
        """Add completions to the journal. Raises LostLeaseError if another worker has added to it since it was read."""
        data = b"".join(pack({"key": key, "completion": c.to_row()}) for key, c in found.items())
        if not self.place.create(f"done/{self.pieces:04d}", data):
            raise LostLeaseError(f"another worker goes on with {self.place.uri}")
        self.pieces += 1
        self.done.update(found)


@dataclass(frozen=True)
class Job:
    """A job at `place`."""

    place: Place
    settings: EngineSettings
    fingerprint: str
    """The model folder's stamp, so that a machine with a copy of its own can be told that it has another."""
    adapters: tuple[str, ...]
    """Names; `adapter` has the files."""
    count: int
    """Number of shards."""

    @classmethod
    def publish(
        cls, root: Place, settings: EngineSettings, owed: Mapping[str, GenerationRequest], *, shard_size: int,
        fingerprint: str = "", adapters: Mapping[str, Path] | None = None,
    ) -> "Job":  # fmt: skip
        """Write the job of the `owed` requests below `root`, or find it there: equal requests are the same job.

        `adapters` are folders, whose files go along. Raises ModelError for one that the engine could not serve.
        """
        keys, files = list(owed), dict[str, Path]()
        for name, folder in (adapters or {}).items():
            found = check_adapter(name, folder, settings.max_lora_rank, enabled=settings.adapters).path
            files |= {f"adapters/{name}/{file}": found / file for file in ADAPTER_FILES}
        place = root.under(f"job-{content_hash(keys, 16)}")
        parts = [keys[i : i + shard_size] for i in range(0, len(keys), shard_size)]
        for number, part in enumerate(parts):
            rows = [pack({"key": key, "request": owed[key].to_row()}) for key in part]
            place.create(f"{number:04d}/requests", b"".join(rows))
        for name, path in files.items():
            place.create(name, path.read_bytes())
        facts = {
            "settings": settings_row(settings), "fingerprint": fingerprint, "shards": len(parts),
            "adapters": sorted(adapters or {}),
        }  # fmt: skip
        # Last: a worker that finds it finds all else.
        place.create(JOB, json.dumps(facts, sort_keys=True).encode())
        return cls.open(place)

    @classmethod
    def open(cls, place: Place) -> "Job":
        """Raises DataError if there is no job at `place`."""
        content = place.read(JOB)
        if content is None:
            raise DataError(f"there is no job at {place.uri}: {JOB} is missing")
        facts = json.loads(content)
        settings = settings_from_row(facts["settings"])
        return cls(place, settings, facts["fingerprint"], tuple(facts["adapters"]), facts["shards"])

    def adapter(self, name: str, folder: Path) -> Path:
        """The folder of an adapter of the job, copied below `folder`. Raises DataError if it is not there."""
        target = folder / name
        target.mkdir(parents=True)
        for file in ADAPTER_FILES:
            content = self.place.read(f"adapters/{name}/{file}")
            if content is None:
                raise DataError(
                    f"{self.place.uri}/adapters/{name}/{file} is missing; remove this job's folder"
                )
            (target / file).write_bytes(content)
        return target

    def shards(self) -> list[Shard]:
        """All shards, not yet read."""
        return [Shard(self.place.under(f"{n:04d}"), n) for n in range(self.count)]

    def fail(self, worker: str, why: str) -> None:
        """Leave word why a worker ended."""
        self.place.replace(f"failed/{worker}", why.encode())

    def failures(self) -> list[str]:
        found = (self.place.read(f"failed/{name}") for name in self.place.names("failed"))
        return [content.decode() for content in found if content]


def model_stamp(folder: Path) -> str:
    """The hash of a model folder's weights, configuration and tokenizer; empty where there are none."""
    found = [path for ending in ("safetensors", "json") for path in folder.glob(f"*.{ending}")]
    return content_hash([[path.name, file_hash(path)] for path in sorted(found)], 32) if found else ""


def jobs_at(root: Place) -> list[Job]:
    """The jobs below `root`, such as one whose coordinator was killed."""
    found = [root.under(name) for name in root.names("") if name.startswith("job-")]
    return [Job.open(place) for place in found if place.read(JOB) is not None]


def done_in_order(shards: Iterable[Shard]) -> Sequence[tuple[str, GenerationRequest, Completion]]:
    """What the journals hold, in the order of the requests."""
    return [(k, r, s.done[k]) for s in shards for k, r in s.requests.items() if k in s.done]


def _rows(data: bytes, name: str) -> Iterable[dict[str, Any]]:
    for line in data.splitlines(keepends=True):
        body = body_of(line)
        if body is None:
            raise DataError(f"{name} is damaged; remove this job's folder and run the same command again")
        yield json.loads(body)
