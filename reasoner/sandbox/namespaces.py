"""Which processes of this machine live in a sandbox's process namespace."""

import contextlib
import os
from pathlib import Path


class ProcessNamespace:
    """The process namespace that the children of one process live in, held open.

    The kernel gives the number of an ended namespace to the next one that is made, also to another program's:
    only while it is held does the number mean this one. Close it, or use it as a context manager.
    """

    def __init__(self, file: int) -> None:
        self._file = file
        self._identity = _identity(os.fstat(file))

    @classmethod
    def of(cls, outer: int) -> "ProcessNamespace | None":
        """That of the children of process `outer`, or None where it has gone or has started none in it yet."""
        try:
            return cls(os.open(f"/proc/{outer}/ns/pid_for_children", os.O_RDONLY))
        except OSError:
            return None

    def __enter__(self) -> "ProcessNamespace":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let it go; `processes` may not be asked afterwards."""
        os.close(self._file)

    def processes(self) -> list[int]:
        """Who lives in it, by the numbers of this machine; one that is dead and not yet reaped does not."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    same = _identity(os.stat(entry / "ns" / "pid")) == self._identity
                    if same and not _is_dead(entry):
                        found.append(int(entry.name))
        return found


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_dead(process: Path) -> bool:
    return (process / "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
