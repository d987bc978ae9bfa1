"""Everything that is known of calls: the store's manifests and the runs' journals."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from reasoner.errors import ArtifactError, UsageError
from reasoner.home import Home
from reasoner.lineage import journal
from reasoner.lineage.calls import Call, call_of, ident
from reasoner.records import ArtifactRef
from reasoner.store import Manifest, Store


class Known:
    """Finds the call that made an artifact. Calls in `first` go before the manifests, as a run's own journal does."""

    def __init__(self, store: Store, first: Iterable[Call] = ()) -> None:
        self.store = store
        self._first = {ident(call.ref): call for call in first if call.ref}
        self._read: dict[tuple[str, str], Manifest | None] = {}

    def call(self, ref: ArtifactRef) -> Call | None:
        """The call that made `ref`; None where neither a journal nor a manifest tells.

        A journal does not tell in what environment and when the artifact was made: its manifest does, of the same call.
        """
        own, made = self._first.get(ident(ref)), self.manifest_call(ref)
        if own is not None and made is not None and own.key == made.key:
            return replace(own, environment=made.environment, created=made.created)
        return own or made

    def manifest_call(self, ref: ArtifactRef) -> Call | None:
        """The call that the manifest tells of."""
        found = self.manifest(ref)
        return call_of(ref, found) if found else None

    def manifest(self, ref: ArtifactRef) -> Manifest | None:
        """The manifest; None where there is none that can be read, as of a reference that a rehearsal made up."""
        key = ident(ref)
        if key not in self._read:
            try:
                self._read[key] = self.store.manifest(ref)
            except (ArtifactError, UsageError):
                self._read[key] = None
        return self._read[key]

    def all(self, stage: str, journals: Iterable[journal.Row] = ()) -> list[Call]:
        """Every call of `stage` whose artifact is in the store, each key once."""
        there = set(map(ident, self.store.list()))
        found: dict[str, Call] = {}
        for ref in self.store.list():
            call = self.manifest_call(ref)
            if call is not None and call.stage == stage:
                found[call.key] = call
        for row in journals:
            if row.call.stage == stage and row.call.ref and ident(row.call.ref) in there:
                found.setdefault(row.call.key, row.call)
        return list(found.values())


def run_folders(home: Home) -> list[Path]:
    """Folders of runs, the newest first."""
    found = [folder for folder in home.runs.glob("*/") if (folder / "config.json").is_file()]
    return sorted(found, key=lambda folder: (folder / "config.json").stat().st_mtime, reverse=True)


def journals(home: Home) -> Iterator[tuple[Path, list[journal.Row]]]:
    """The journal of every run."""
    for folder in run_folders(home):
        yield folder, journal.read(folder)
