"""Who made a temporary file or holds a lock, in a form that tells later whether that process still lives.

A pid alone is not enough: pids come again, a machine reboots, and two containers or two machines that share a
folder cannot see each other's pids. Where an owner cannot be judged from here it counts as alive.
"""

import hashlib
import os
import socket
from functools import lru_cache
from pathlib import Path


def owner_tag(pid: int | None = None) -> str:
    """`pid-start-boot-namespace-host`: five fields without dots or slashes, for use in file names."""
    pid = os.getpid() if pid is None else pid
    return f"{pid}-{_start_time(pid) or 0}-{_place()}"


def owner_is_dead(tag: str) -> bool:
    """Whether the process that `owner_tag` named has certainly ended."""
    pid, start, boot, namespace, host = parse_tag(tag)
    own_boot, own_namespace, own_host = _place().split("-")
    if host != own_host:
        return False
    if boot != own_boot:
        return True
    if namespace != own_namespace:
        return False
    return _start_time(pid) != start


def parse_tag(tag: str) -> tuple[int, int, str, str, str]:
    """Pid, start time in clock ticks, boot, pid namespace and host of a tag; ValueError if it is none."""
    pid, start, boot, namespace, host = tag.split("-")
    return int(pid), int(start), boot, namespace, host


@lru_cache
def _place() -> str:
    """Boot, pid namespace and host of this process."""
    boot = _text("/proc/sys/kernel/random/boot_id").replace("-", "")[:12] or "0"
    try:
        namespace = str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        namespace = "0"
    return f"{boot}-{namespace}-{hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]}"


def _start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if it does not live (a zombie does not)."""
    stat = _text(f"/proc/{pid}/stat")
    fields = stat.rpartition(")")[2].split()
    if not fields or fields[0] in "ZX":
        return None
    return int(fields[19])


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
