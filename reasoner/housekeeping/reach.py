"""What must stay: everything that a root reaches along the references of manifests and journals.

Roots are finished runs, releases, runs that are going on, and whatever was used in the last days. A run that was cut
off is such a thing too: for some days it can be taken up again, with all that it has made so far.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.errors import DataError
from reasoner.home import Home
from reasoner.housekeeping.live import Live, live_runs
from reasoner.housekeeping.sizes import measure
from reasoner.lineage import journal
from reasoner.lineage.calls import Call, ident, refs_of
from reasoner.lineage.known import Known
from reasoner.records import ArtifactRef
from reasoner.store.removal import last_used

DAY = 24 * 3600.0
MARGIN = 60.0
"""Seconds by which the times of files may lag behind a process's clock: milliseconds here, more on a network."""
DIGEST = re.compile(r"[0-9a-f]{64}")
Ident = tuple[str, str]
FINISHED, RUNNING, UNFINISHED = "done", "running", "unfinished"


@dataclass(frozen=True)
class Run:
    """A run's folder."""

    folder: Path
    state: str
    bytes: int
    touched: float
    rows: tuple[journal.Row, ...]
    result: tuple[ArtifactRef, ...]
    """Report and model of a finished run."""

    def refs(self) -> Iterator[ArtifactRef]:
        """Every artifact that the run has used or made, as far as its journal and its result tell."""
        yield from self.result
        for row in self.rows:
            yield from row.call.refs()
            if row.call.ref:
                yield row.call.ref


@dataclass
class Reach:
    """What is in a home folder, and what of it must stay."""

    home: Home
    known: Known
    runs: list[Run]
    live: list[Live]
    since: float
    """What was touched since that moment stays."""
    releases: dict[str, set[str]] = field(default_factory=dict)
    artifacts: list[ArtifactRef] = field(default_factory=list)
    kept: set[Ident] = field(default_factory=set)
    """Kind and digest of the artifacts that stay."""

    @property
    def kept_runs(self) -> list[Run]:
        return [run for run in self.runs if run.state != UNFINISHED or run.touched >= self.since]

    @property
    def kept_keys(self) -> set[str]:
        """Stages that a kept run has begun and not ended: their unfinished work can be taken up again."""
        rows = [row for run in self.kept_runs for row in run.rows]
        return {row.call.key for row in rows if row.state == journal.STARTED}

    def calls(self, kept: bool) -> Iterator[Call]:
        """Calls of all artifacts and runs, or only of those that stay."""
        for ref in self.artifacts:
            if not kept or ident(ref) in self.kept:
                call = self.known.manifest_call(ref)
                if call is not None:
                    yield call
        for run in self.kept_runs if kept else self.runs:
            yield from (row.call for row in run.rows)

    def closure(self, refs: Iterable[ArtifactRef]) -> set[Ident]:
        """These artifacts and all that they were made from."""
        found: set[Ident] = set()
        left = list(refs)
        while left:
            ref = left.pop()
            if ident(ref) in found:
                continue
            found.add(ident(ref))
            call = self.known.manifest_call(ref)
            if call is not None:
                left.extend(call.refs())
        return found

    def released(self) -> Iterator[ArtifactRef]:
        """Every artifact that a release names."""
        digests = {digest for named in self.releases.values() for digest in named}
        return (ref for ref in self.artifacts if ref.digest in digests)


def look(home: Home, known: Known, now: float, keep_days: float) -> Reach:
    """Take stock of a home folder. Raises DataError where the file of releases cannot be read: it holds roots."""
    live = live_runs(home)
    since = min([now - keep_days * DAY, *(one.since for one in live)]) - MARGIN
    reach = Reach(home, known, _runs(home, {one.run for one in live}), live, since, _releases(home))
    reach.artifacts = known.store.list()
    roots = [ref for run in reach.kept_runs for ref in run.refs()]
    roots += reach.released()
    if known.store.remote is None:
        roots += [ref for ref in reach.artifacts if last_used(known.store, ref) >= since]
    reach.kept = reach.closure(roots)
    return reach


def _runs(home: Home, live: set[str]) -> list[Run]:
    found = []
    for folder in sorted(home.runs.glob("*/")):
        size, touched = measure(folder)
        result = _result(folder / "result.json")
        ended = result is not None or (folder / journal.FINISHED).is_file()
        state = RUNNING if folder.name in live else FINISHED if ended else UNFINISHED
        found.append(Run(folder, state, size, touched, tuple(journal.read(folder)), result or ()))
    return found


def _result(path: Path) -> tuple[ArtifactRef, ...] | None:
    """References of a run's result; None where it has none."""
    try:
        return tuple(ref for _, ref in refs_of(json.loads(path.read_bytes())))
    except (OSError, ValueError):
        return None


def _releases(home: Home) -> dict[str, set[str]]:
    path = home.path / "releases.json"
    try:
        return {str(row["name"]): set(_digests(row)) for row in json.loads(path.read_bytes())["releases"]}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} cannot be read ({type(error).__name__}), and releases must not be removed: mend it or move it away"
        ) from None


def _digests(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from DIGEST.findall(value)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _digests(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _digests(inner)
