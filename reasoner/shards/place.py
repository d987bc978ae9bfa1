"""Where several machines meet: named blobs in a folder or at an fsspec URL, some of which can be made only once.

`create` is what all else rests on: of any number of processes that create one name, one succeeds. In a folder that is
link(2), on S3 a conditional PUT (If-None-Match). Not covered: stores that ignore the condition; `require_exclusive`
finds them out.
"""

import contextlib
import os
import uuid
from pathlib import Path
from typing import Any

from reasoner.errors import InfrastructureError
from reasoner.store.durable import make_folder, replace_file, sync_folder, write_new
from reasoner.store.remote import Remote, is_remote, local_path


class Place:
    """Blobs under `root`, named by relative paths with `/`. Every call may raise InfrastructureError."""

    def __init__(self, root: str | Path) -> None:
        self.folder = None if is_remote(root) else local_path(root)
        self.remote = Remote(str(root)) if self.folder is None else None
        self.uri = str(self.folder) if self.remote is None else self.remote.url

    def under(self, name: str) -> "Place":
        """The place of a part of this one."""
        return Place(f"{self.uri}/{name}")

    def create(self, name: str, data: bytes) -> bool:
        """Write a blob that is not there yet, whole or not at all; False if there is one, which stays."""
        if self.folder is not None:
            return self._link(self.folder / name, data)
        try:
            self._fs.pipe_file(self._address(name), data, mode="create")
        except FileExistsError:
            return False
        except Exception as error:
            if _condition_failed(error):
                return False
            raise self._trouble("write", name, error) from error
        return True

    def replace(self, name: str, data: bytes) -> None:
        """Write a blob, or put another in its place."""
        try:
            if self.folder is not None:
                make_folder((self.folder / name).parent)
                replace_file(self.folder / name, [data])
            else:
                self._fs.pipe_file(self._address(name), data)
        except Exception as error:
            raise self._trouble("write", name, error) from error

    def read(self, name: str) -> bytes | None:
        """A blob's content, or None if there is none."""
        try:
            if self.folder is not None:
                return (self.folder / name).read_bytes()
            self._fs.invalidate_cache()
            return bytes(self._fs.cat_file(self._address(name)))
        except FileNotFoundError:
            return None
        except Exception as error:
            raise self._trouble("read", name, error) from error

    def names(self, prefix: str) -> list[str]:
        """The names of the blobs directly below `prefix`, sorted."""
        try:
            if self.folder is not None:
                found = os.listdir(self.folder / prefix)
            else:
                self._fs.invalidate_cache()
                listed = self._fs.ls(self._address(prefix), detail=False)
                found = [entry.rstrip("/").rpartition("/")[2] for entry in listed]
        except FileNotFoundError:
            return []
        except Exception as error:
            raise self._trouble("list", prefix, error) from error
        return sorted(name for name in found if name and not name.startswith("."))

    def require_exclusive(self) -> None:
        """Prove that a name is made only once here. Raises InfrastructureError for a store that lets two make it."""
        name = f"probe/{uuid.uuid4().hex}"
        first, second = self.create(name, b"1"), self.create(name, b"2")
        if (first, second) != (True, False) or self.read(name) != b"1":
            raise InfrastructureError(
                f"{self.uri} lets two machines create one object (it ignores If-None-Match); use a store that does "
                "not, or a shared folder"
            )

    @property
    def _fs(self) -> Any:
        assert self.remote is not None
        return self.remote.fs

    def _address(self, name: str) -> str:
        assert self.remote is not None
        return f"{self.remote.path}/{name}"

    def _link(self, path: Path, data: bytes) -> bool:
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        try:
            make_folder(path.parent)
            write_new(temporary, data)
            os.link(temporary, path)
            sync_folder(path.parent)
        except FileExistsError:
            return False
        except OSError as error:
            raise self._trouble("write", path.name, error) from error
        finally:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return True

    def _trouble(self, verb: str, name: str, error: Exception) -> InfrastructureError:
        return InfrastructureError(
            f"{self.uri}: cannot {verb} {name}: {type(error).__name__}: {error}. Check access and try again."
        )


def _condition_failed(error: BaseException) -> bool:
    """Whether the store refused because the object is there (412), or another is just being written (409)."""
    seen: BaseException | None = error
    while seen is not None:
        code = getattr(seen, "response", {}).get("Error", {}).get("Code", "")
        if code in ("PreconditionFailed", "412", "ConditionalRequestConflict"):
            return True
        seen = seen.__cause__
    return False
