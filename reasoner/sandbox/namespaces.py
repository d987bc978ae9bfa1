"""Which processes of this machine live in a sandbox's process namespace."""

import os
from pathlib import Path


def process_namespace(outer: int) -> str:
    """The process namespace that the children of process `outer` live in, or an empty string."""
    try:
        return os.readlink(f"/proc/{outer}/ns/pid_for_children")
    except OSError:
        return ""


def processes_in(namespace: str) -> list[int]:
    """Processes of this machine that live in a process namespace; one that is dead and not yet reaped does not."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "ns" / "pid") == namespace and not _is_dead(entry):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _is_dead(process: Path) -> bool:
    return (process / "stat").read_bytes().rpartition(b")")[2].split()[0] in (b"Z", b"X")
