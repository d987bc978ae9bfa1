"""The part of a store that lies at an fsspec URL: uploads with the manifest last, downloads, listings.

A file store such as S3 has no rename, so completeness is the manifest: it is uploaded when everything else is
there, and nothing without one counts. Two machines that upload the same digest write the same bytes.
"""

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from reasoner.errors import InfrastructureError, UsageError
from reasoner.store.durable import sync_file
from reasoner.store.manifest import MANIFEST, POINTER, Manifest
from reasoner.store.publish import finish

DAMAGED = ".damaged"


def is_remote(root: str | Path) -> bool:
    """Whether `root` is a URL other than file://."""
    return "://" in str(root) and not str(root).startswith("file://")


def local_path(root: str | Path) -> Path:
    """The folder of a path or of a file:// URL, absolute."""
    return Path(str(root).removeprefix("file://")).expanduser().absolute()


def cache_folder(url: str) -> Path:
    """For copies of a URL's artifacts: below REASONER_CACHE, XDG_CACHE_HOME/reasoner or ~/.cache/reasoner."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    base = Path(os.environ.get("REASONER_CACHE") or Path(home, "reasoner"))
    return base.absolute() / "artifacts" / hashlib.sha256(url.encode()).hexdigest()[:16]


class Remote:
    """Artifacts at `url`. Credentials come from the environment, as its client wants them."""

    def __init__(self, url: str, fs: Any = None) -> None:
        self.url = url.rstrip("/")
        if urlsplit(url).password:
            raise UsageError("a store's URL must not hold a password: credentials come from the environment")
        # Imported here: it takes longer than the rest of the store together.
        import fsspec

        try:
            self.fs: Any = fsspec.core.url_to_fs(self.url)[0] if fs is None else fs
        except (ImportError, ValueError) as error:
            raise UsageError(f"{url}: {error}") from None
        self.path: str = self.fs._strip_protocol(self.url)

    def manifest(self, kind: str, digest: str) -> Manifest:
        """The manifest of an artifact. ValueError, naming the address, if there is none or it is damaged."""
        address = f"{self.path}/{kind}/{digest}/{MANIFEST}"
        try:
            self.fs.invalidate_cache()
            data = self.fs.cat_file(address)
        except FileNotFoundError:
            raise ValueError(f"{self.url}/{kind}/{digest}/{MANIFEST} is missing") from None
        except Exception as error:
            raise self._trouble(f"cannot read {kind}/{digest[:12]}", error) from error
        try:
            return Manifest.from_bytes(data)
        except ValueError as error:
            raise ValueError(f"{self.url}/{kind}/{digest}/{MANIFEST} {error}") from None

    def check_sizes(self, manifest: Manifest) -> None:
        """ValueError, naming the file, unless every file is there with its size."""
        base = f"{self.path}/{manifest.kind}/{manifest.digest}"
        try:
            self.fs.invalidate_cache()
            found = {
                self._relative(name, base): info["size"]
                for name, info in self.fs.find(base, detail=True).items()
            }
        except Exception as error:
            raise self._trouble(f"cannot list {manifest.kind}/{manifest.digest[:12]}", error) from error
        wanted = {POINTER: None} if manifest.outside else {entry.path: entry.size for entry in manifest.files}
        for path, size in wanted.items():
            where = f"{self.url}/{manifest.kind}/{manifest.digest}/{path}"
            if path not in found:
                raise ValueError(f"{where} is missing")
            if size is not None and found[path] != size:
                raise ValueError(f"{where} has {found[path]} bytes instead of {size}")

    def push(self, folder: Path, manifest: Manifest) -> None:
        """Upload an intact local artifact unless it is there. A damaged one is moved to `.damaged/` first."""
        base = f"{self.path}/{manifest.kind}/{manifest.digest}"
        try:
            if self.manifest(manifest.kind, manifest.digest).digest == manifest.digest:
                self.check_sizes(manifest)
                return
        except ValueError:
            pass
        try:
            self._set_aside(base, manifest)
            names = [POINTER] if manifest.outside else [entry.path for entry in manifest.files]
            for name in [*names, MANIFEST]:
                self.fs.makedirs(self._parent(f"{base}/{name}"), exist_ok=True)
                self.fs.put_file(str(folder / name), f"{base}/{name}")
        except Exception as error:
            raise self._trouble(f"cannot upload {manifest.kind}/{manifest.digest[:12]}", error) from error

    def pull(self, manifest: Manifest, draft: Path) -> None:
        """Download an artifact's files into an empty folder, flush them and write the manifest last."""
        base = f"{self.path}/{manifest.kind}/{manifest.digest}"
        for name in [POINTER] if manifest.outside else [entry.path for entry in manifest.files]:
            (draft / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                self.fs.get_file(f"{base}/{name}", str(draft / name))
            except Exception as error:
                raise self._trouble(
                    f"cannot download {manifest.kind}/{manifest.digest[:12]}/{name}", error
                ) from error
            sync_file(draft / name)
        finish(draft, manifest)

    def pairs(self, kind: str | None) -> list[tuple[str, str]]:
        """Kind and digest of every artifact that has a manifest."""
        try:
            self.fs.invalidate_cache()
            found = self.fs.glob(f"{self.path}/{kind or '*'}/*/{MANIFEST}")
        except Exception as error:
            raise self._trouble("cannot list the store", error) from error
        return [(name.split("/")[-3], name.split("/")[-2]) for name in found]

    def set_aside(self, manifest: Manifest) -> None:
        """Move an artifact whose content is damaged to `.damaged/`, as far as the credentials allow it."""
        with contextlib.suppress(Exception):
            self._set_aside(f"{self.path}/{manifest.kind}/{manifest.digest}", manifest)

    def _set_aside(self, base: str, manifest: Manifest) -> None:
        if not self.fs.exists(f"{base}/{MANIFEST}"):
            return
        # Without its manifest it no longer counts, so a crash in the middle of the move is harmless.
        shelf = f"{self.path}/{DAMAGED}/{manifest.kind}-{manifest.digest}"
        for name in [f"{base}/{MANIFEST}", *self.fs.find(base)]:
            if self.fs.exists(name):
                goal = f"{shelf}/{self._relative(name, base)}"
                self.fs.makedirs(self._parent(goal), exist_ok=True)
                self.fs.mv(name, goal)

    def _relative(self, name: str, base: str) -> str:
        return name[len(self.fs._strip_protocol(base)) :].lstrip("/")

    @staticmethod
    def _parent(name: str) -> str:
        return name.rpartition("/")[0]

    def _trouble(self, what: str, error: Exception) -> InfrastructureError:
        return InfrastructureError(
            f"{self.url}: {what}: {type(error).__name__}: {error}. Check access and try again."
        )
