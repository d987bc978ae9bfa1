"""Finds the artifact that people mean: by a run, a digest or its beginning, a stage's key, or a folder."""

import json
import re
from pathlib import Path

from reasoner.config.compose import nearest
from reasoner.errors import UsageError
from reasoner.home import Home
from reasoner.housekeeping.results import kept_result
from reasoner.lineage import journal
from reasoner.lineage.calls import Call
from reasoner.lineage.known import Known, run_folders
from reasoner.records import ArtifactRef
from reasoner.store.hashes import HashCache
from reasoner.store.manifest import MANIFEST, Manifest, content_digest
from reasoner.store.pointer import scan_outside

DIGEST = re.compile(r"(?:(?P<kind>[a-z0-9._-]+)/)?(?P<digest>[0-9a-f]{6,64})")
SHOWN = 5


def find_model(name: str, home: Home, known: Known) -> tuple[ArtifactRef, list[Call]]:
    """The artifact called `name`, and the calls of the run by which it was named, if one was.

    Raises UsageError for nothing, for several, and for a run that has not made anything yet.
    """
    path = Path(name).expanduser()
    if path.is_dir() and not (path / "config.json").is_file():
        return _in_folder(path, home, known), []
    if path.is_dir() and (path / MANIFEST).is_file():
        return _in_folder(path, home, known), []
    digest = DIGEST.fullmatch(name)
    if digest:
        found = [ref for ref in known.store.list(digest["kind"]) if ref.digest.startswith(digest["digest"])]
        if len(found) == 1:
            return found[0], []
        if found:
            there = ", ".join(f"{ref.kind}/{ref.digest[:16]}" for ref in found[:SHOWN])
            raise UsageError(
                f"{len(found)} artifacts begin with {digest['digest']!r}: {there}; give KIND/DIGITS or more digits"
            )
    kept = kept_result(home, name) if re.fullmatch(r"[a-z0-9.-]+", name) else None
    return (kept, []) if kept else _of_run(name, home, known)


def _in_folder(folder: Path, home: Home, known: Known) -> ArtifactRef:
    """By its manifest, or where it is a copy or a folder outside the store by its content."""
    try:
        manifest = Manifest.from_bytes((folder / MANIFEST).read_bytes())
        kind, digest = manifest.kind, manifest.digest
    except (OSError, ValueError):
        kind, digest = (
            "",
            content_digest(scan_outside(folder, HashCache(home.path / "models" / "hashes.json"))),
        )
    for ref in known.store.list(kind or None):
        if ref.digest == digest:
            return ref
    raise UsageError(
        f"{folder} is no artifact of {known.store.uri}: nothing there has its content ({digest[:12]}). Give a run, a "
        "digest, or a folder as a run left it."
    )


def _of_run(name: str, home: Home, known: Known) -> tuple[ArtifactRef, list[Call]]:
    from reasoner.audit.runs import find_run

    try:
        folder = find_run(name, home)
    except UsageError as error:
        runs = [folder.name for folder in run_folders(home)]
        digests = [ref.digest for ref in known.store.list()]
        hint = nearest(
            name, [*runs, *(run[:-37] for run in runs), *(d[: max(len(name), 6)] for d in digests)]
        )
        if not hint or "runs are called" in str(error):
            raise
        raise UsageError(
            f"no run, artifact, key or folder {name!r}.{hint} (all runs: reasoner runs)"
        ) from None
    calls = [row.call for row in journal.read(folder) if row.call.ref]
    result = folder / "result.json"
    if result.is_file():
        return ArtifactRef.from_row(json.loads(result.read_text())["model"]), calls
    if not calls:
        raise UsageError(f"run {folder.name} has made nothing yet")
    trained = [call for call in calls if call.ref and call.ref.kind in ("model", "policies", "adapter")]
    last = (trained or calls)[-1].ref
    assert last is not None
    return last, calls
