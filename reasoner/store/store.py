"""Content-addressed artifacts in a folder or at an fsspec URL.

Guarantees: what `open` returns has the content that the reference names; an artifact is there as a whole or
not at all, whatever kills the process that writes it; equal content is stored once. A store at a URL keeps a
verified copy in a local cache folder, and an artifact there is complete only with its manifest, which is
uploaded last. Not covered: deleting what nothing reaches, and hardware that alters large files without
changing size or time (`full=True` finds that).
"""

import contextlib
import glob
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.errors import ArtifactError, InfrastructureError, UsageError
from reasoner.process.locks import FileLock
from reasoner.records import ArtifactRef
from reasoner.store import pointer, remote
from reasoner.store.check import find_problem
from reasoner.store.durable import make_folder
from reasoner.store.hashes import HashCache
from reasoner.store.manifest import MANIFEST, Manifest, plain_metadata
from reasoner.store.publish import LOCK, place, seal, touch
from reasoner.store.temporary import make_temporary, remove_stale, remove_temporary
from reasoner.trouble import FORBIDDEN

KIND = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
DIGEST = re.compile(r"[0-9a-f]{64}")
HASHES = ".hashes.json"


@dataclass(slots=True)
class Draft:
    """An artifact in the making: write its files below `path`, add what is worth knowing to `metadata`."""

    path: Path
    metadata: dict[str, Any]
    _ref: ArtifactRef | None = None

    @property
    def ref(self) -> ArtifactRef:
        """The reference, once the `with` block has ended well."""
        if self._ref is None:
            raise UsageError("draft.ref exists only after the end of the `with store.writer(…)` block")
        return self._ref


class Store:
    """Artifacts under `root`: a folder, or an fsspec URL such as s3://bucket/path.

    `cache` is the local folder for copies of a URL's artifacts, by default one below the user's cache folder.
    """

    def __init__(self, root: str | Path, cache: Path | None = None) -> None:
        self.remote = remote.Remote(str(root)) if remote.is_remote(root) else None
        if self.remote is None:
            self.folder = remote.local_path(root)
            self.uri = str(self.folder)
        else:
            self.folder = cache or remote.cache_folder(self.remote.url)
            self.uri = self.remote.url
        self._hashes = HashCache(self.folder / HASHES)
        remove_stale(self.folder)

    @contextlib.contextmanager
    def writer(self, kind: str, metadata: Mapping[str, Any] | None = None) -> Iterator[Draft]:
        """Write a new artifact: `with store.writer("sft") as draft: …`, then `draft.ref`.

        Published when the block ends well; after an exception nothing is left. If the same content is there
        and intact it stays, with its first metadata. Raises UsageError for an empty draft, links, or metadata
        that is not plain data, InfrastructureError when the disk refuses.
        """
        _check_kind(kind)
        known = plain_metadata(metadata or {})
        draft = Draft(self._temporary(), known)
        try:
            yield draft
            with _disk_errors(kind, draft.path):
                manifest = seal(draft.path, kind, draft.metadata)
                draft._ref = self._publish(draft.path, manifest)
        finally:
            remove_temporary(draft.path)

    def register(
        self, kind: str, folder: str | Path, metadata: Mapping[str, Any] | None = None
    ) -> ArtifactRef:
        """An artifact that points at an existing folder, such as a base model, without copying it.

        Its digest comes from the files alone, not from where they lie. Hidden files are left out, links are
        followed. The hashes of big files are remembered. Raises UsageError for a missing or empty folder.
        """
        _check_kind(kind)
        folder = Path(folder).absolute()
        entries = pointer.scan_outside(folder, self._hashes)
        manifest = Manifest.make(kind, entries, metadata or {}, outside=True)
        target = self._target(kind, manifest.digest)
        if target.is_dir() and self._points_at(target, kind, manifest.digest, folder):
            return self._share(target, manifest)
        draft = self._temporary()
        try:
            with _disk_errors(kind, draft):
                pointer.write(draft, folder, manifest)
                return self._publish(draft, manifest)
        finally:
            remove_temporary(draft)

    def open(self, ref: ArtifactRef, full: bool = False) -> Path:
        """The folder of an artifact, verified; read it, never write to it.

        Files up to 64 MiB are hashed, larger ones checked by size and time, all hashed with `full`. Raises
        ArtifactError when it is missing, incomplete or altered.
        """
        target = self._target(ref.kind, ref.digest)
        if self.remote is not None:
            self._fetch(ref, target, full)
        problem = self._local_problem(target, ref.kind, ref.digest, full)
        if problem is not None:
            raise ArtifactError(self._complaint(ref, target, problem))
        return pointer.read(target).folder if _read_manifest(target).outside else target

    def verify(self, ref: ArtifactRef, full: bool = False) -> Manifest:
        """Check an artifact as `open` does and return its manifest. Raises ArtifactError."""
        self.open(ref, full)
        return _read_manifest(self._target(ref.kind, ref.digest))

    def here(self, ref: ArtifactRef) -> ArtifactRef:
        """The same artifact at this store's address, where this folder holds it; else the reference as it is.

        A home folder that was copied to another place or machine brings references to the old one.
        """
        if self.remote is None and (self._target(ref.kind, ref.digest) / MANIFEST).is_file():
            return self._ref(ref.kind, ref.digest)
        return ref

    def manifest(self, ref: ArtifactRef) -> Manifest:
        """What it consists of and how it was made; the files are not checked. Raises ArtifactError."""
        target = self._target(ref.kind, ref.digest)
        try:
            found = self.remote.manifest(ref.kind, ref.digest) if self.remote else _read_manifest(target)
            _check_identity(found, ref.kind, ref.digest)
        except ValueError as error:
            raise ArtifactError(self._complaint(ref, target, str(error))) from None
        return found

    def _points_at(self, target: Path, kind: str, digest: str, folder: Path) -> bool:
        """Whether an intact pointer to `folder` is there, which is then in use."""
        with FileLock(self.folder / LOCK, timeout=None):
            found = (
                self._local_problem(target, kind, digest) is None and pointer.read(target).folder == folder
            )
            if found:
                touch(target)
            return found

    def _local_pairs(self, kind: str | None) -> list[tuple[str, str]]:
        # Not Path.glob, which fails where a folder disappears under it, as temporary ones do.
        found = glob.glob(f"{kind or '*'}/*/{MANIFEST}", root_dir=self.folder)
        return [(Path(path).parts[0], Path(path).parts[1]) for path in found]

    def _ref(self, kind: str, digest: str) -> ArtifactRef:
        return ArtifactRef(kind, digest, f"{self.uri}/{kind}/{digest}")

    def _target(self, kind: str, digest: str) -> Path:
        _check_kind(kind)
        if not DIGEST.fullmatch(digest):
            raise UsageError(f"{digest!r} is not the digest of an artifact (64 hex digits)")
        return self.folder / kind / digest

    def _temporary(self) -> Path:
        try:
            make_folder(self.folder)
            return make_temporary(self.folder)
        except OSError as error:
            raise InfrastructureError(
                f"cannot write to the store {self.folder}: {error.strerror}. Set REASONER_STORE to "
                "a folder that can be written."
            ) from error

    def _publish(self, draft: Path, manifest: Manifest) -> ArtifactRef:
        kind, digest = manifest.kind, manifest.digest
        target = self._target(kind, digest)

        def problem() -> str | None:
            if manifest.outside:
                return "points elsewhere" if pointer.differs(draft, target) else None
            return self._local_problem(target, kind, digest, full=True)

        place(draft, self.folder, manifest, problem)
        return self._share(target, manifest)

    def _share(self, target: Path, manifest: Manifest) -> ArtifactRef:
        if self.remote is not None:
            self.remote.push(target, _read_manifest(target))
        return self._ref(manifest.kind, manifest.digest)

    def _fetch(self, ref: ArtifactRef, target: Path, full: bool) -> None:
        """Make sure that the URL has the whole artifact and that the cache holds an intact copy."""
        assert self.remote is not None
        try:
            manifest = self.remote.manifest(ref.kind, ref.digest)
            _check_identity(manifest, ref.kind, ref.digest)
            self.remote.check_sizes(manifest)
        except ValueError as error:
            raise ArtifactError(self._complaint(ref, target, str(error))) from None
        if not full and self._local_problem(target, ref.kind, ref.digest) is None:
            return
        draft = self._temporary()
        try:
            with _disk_errors(ref.kind, draft):
                self.remote.pull(manifest, draft)
                if not manifest.outside:
                    problem = find_problem(draft, manifest.files, self._hashes, full=True)
                    if problem is not None:
                        # Otherwise the same command would find it there again and not replace it.
                        self.remote.set_aside(manifest)
                        address = f"{self.uri}/{ref.kind}/{ref.digest}"
                        raise ArtifactError(
                            self._complaint(ref, target, problem.replace(str(draft), address))
                        )
                elif target.exists():
                    return
                place(
                    draft,
                    self.folder,
                    manifest,
                    lambda: self._local_problem(target, ref.kind, ref.digest, full),
                )
        finally:
            remove_temporary(draft)

    def _local_problem(self, target: Path, kind: str, digest: str, full: bool = False) -> str | None:
        if not target.is_dir():
            return f"{target} is missing"
        try:
            manifest = _read_manifest(target)
            _check_identity(manifest, kind, digest)
            if manifest.outside:
                return pointer.find_problem_outside(target, manifest, self._hashes, full)
        except ValueError as error:
            return str(error)
        return find_problem(target, manifest.files, self._hashes, full=full)

    def _complaint(self, ref: ArtifactRef, target: Path, problem: str) -> str:
        text = f"artifact {ref.kind}/{ref.digest[:12]}: {problem}."
        if target.is_dir() and pointer.is_pointer(target):
            return f"{text} It lies outside the store: put it back as it was, or register it anew."
        return f"{text} Run the same command again: it will be made anew."

    def list(self, kind: str | None = None) -> list[ArtifactRef]:
        """References of the artifacts that have a manifest, sorted; their files are not checked.

        Last in the class, because its name hides the type `list`.
        """
        if kind is not None:
            _check_kind(kind)
        pairs = self.remote.pairs(kind) if self.remote else self._local_pairs(kind)
        return [
            self._ref(name, digest)
            for name, digest in sorted(pairs)
            if KIND.fullmatch(name) and DIGEST.fullmatch(digest)
        ]


def _read_manifest(target: Path) -> Manifest:
    """ValueError, naming the file, if there is no readable manifest."""
    path = target / MANIFEST
    try:
        return Manifest.from_bytes(path.read_bytes())
    except FileNotFoundError:
        raise ValueError(f"{path} is missing" if target.is_dir() else f"{target} is missing") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"{path} {error}") from None


def _check_identity(manifest: Manifest, kind: str, digest: str) -> None:
    if (manifest.kind, manifest.digest) != (kind, digest):
        raise ValueError(f"its {MANIFEST} is of another artifact ({manifest.kind}/{manifest.digest[:12]})")


def _check_kind(kind: str) -> None:
    if not KIND.fullmatch(kind):
        raise UsageError(f"{kind!r} is not a kind of artifact: use small letters, digits, '.', '_' and '-'")


@contextlib.contextmanager
def _disk_errors(kind: str, path: Path) -> Iterator[None]:
    """An OSError while publishing becomes an error that says what to do."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        refused = error.errno in FORBIDDEN
        advice = "make it writable for this user" if refused else "free some space or mend the disk"
        raise InfrastructureError(
            f"cannot publish a {kind} artifact: {error.strerror or error} ({os.fspath(where)}). Nothing was "
            f"published; {advice}, and run the same command again."
        ) from error


def _store_of(ref: ArtifactRef) -> Store:
    root, kind, digest = ([*ref.uri.rstrip("/").rsplit("/", 2), "", ""])[:3]
    if (kind, digest) != (ref.kind, ref.digest) or not root:
        raise ArtifactError(
            f"artifact {ref.kind}/{ref.digest[:12]}: its address {ref.uri!r} does not fit its digest."
        )
    return Store(root)


def open_ref(ref: ArtifactRef, full: bool = False) -> Path:
    """`Store.open` in the store that the reference's address names."""
    return _store_of(ref).open(ref, full)


def verify_ref(ref: ArtifactRef, full: bool = False) -> Manifest:
    """`Store.verify` in the store that the reference's address names."""
    return _store_of(ref).verify(ref, full)


__all__ = ["Draft", "Store", "open_ref", "verify_ref"]
