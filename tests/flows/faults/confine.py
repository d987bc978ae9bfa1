"""What the kernel must do for some faults: a small disk of its own, and no way around file permissions.

A small disk is a tmpfs that only one mount namespace sees; commands join it with `setns` after the fork. A user may
mount in a user namespace alone, in which he stays himself, so that the sandbox maps him as ever. Root needs none, and
gets none: in one the sandbox couldn't map its nobody. Root ignores permissions by CAP_DAC_OVERRIDE, which is dropped; a
user has no such power to drop.
"""

import contextlib
import ctypes
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
PR_CAPBSET_DROP = 24
CAPABILITY_VERSION_3 = 0x20080522
libc = ctypes.CDLL(None, use_errno=True)


def _apart(script: str) -> list[str]:
    """The command that runs a shell's `script` where it may mount what only it sees."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    return ["unshare", "--mount", *user, "sh", "-c", script]


def why_no_small_disk() -> str:
    """Why a tmpfs of one's own cannot be mounted here, or nothing."""
    if shutil.which("unshare") is None:
        return "no unshare(1)"
    script = "mount -t tmpfs -o size=64k none /mnt"
    done = subprocess.run(_apart(script), capture_output=True, text=True)
    return "" if done.returncode == 0 else f"no tmpfs in a mount namespace: {done.stderr.strip()}"


class SmallDisk:
    """A tmpfs on `folder` that holds a copy of what is there, seen from outside under `seen`."""

    def __init__(self, folder: Path, source: Path, size: int) -> None:
        script = f"mount -t tmpfs -o size={size} none {folder} && cp -a {source}/. {folder} && echo ready && read end"
        self._process = subprocess.Popen(_apart(script), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdout is not None and self._process.stdout.readline() == b"ready\n"
        self.pid = self._process.pid
        self.seen = Path(f"/proc/{self.pid}/root{folder}")

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


@contextlib.contextmanager
def small_disk(folder: Path, source: Path, size: int) -> Iterator[SmallDisk]:
    disk = SmallDisk(folder, source, size)
    try:
        yield disk
    finally:
        disk.close()


def join(pid: int) -> None:
    """Enter the namespaces of a `SmallDisk`; for a process with one thread."""
    user = [] if os.geteuid() == 0 else [("user", CLONE_NEWUSER)]
    for name, kind in (*user, ("mnt", CLONE_NEWNS)):
        fd = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY)
        _check(libc.setns(fd, kind), f"setns {name}")
        os.close(fd)


def obey_permissions() -> None:
    """From here on this process and its children meet file permissions as any user does."""
    if os.geteuid() != 0:
        return
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        _check(libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0), "prctl")
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    data = ctypes.create_string_buffer(24)
    _check(libc.capget(header, data), "capget")
    sets = list(struct.unpack("6I", data.raw))
    dropped = ~(1 << CAP_DAC_OVERRIDE | 1 << CAP_DAC_READ_SEARCH)
    sets[:3] = [value & dropped for value in sets[:3]]
    _check(libc.capset(header, struct.pack("6I", *sets)), "capset")


def _check(result: int, what: str) -> None:
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
