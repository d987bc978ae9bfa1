"""Child program, second part: the root of the jail, in a mount namespace of its own."""

from __future__ import annotations

import ctypes
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from reasoner.sandbox.inside.syscalls import check, libc, mount

_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = (
    1,
    2,
    4,
    8,
    4096,
    16384,
    1 << 18,
)
_SYS_MOUNT_SETATTR = 442  # one number on every architecture
_AT_RECURSIVE, _AT_FDCWD = 0x8000, -100


def _sources(hidden: list[str]) -> tuple[list[str], list[str]]:
    """Folders that the root shows: those of the system, and this interpreter's that are not in them."""
    system = [path for path in ("/usr", "/lib", "/lib32", "/lib64", "/libx32") if os.path.isdir(path)]
    library = os.path.dirname(os.path.dirname(os.path.realpath(os.__file__)))
    own = [library, os.path.join(os.path.realpath(sys.base_exec_prefix), "bin")]

    def shown(path: str) -> bool:
        return any(_within(path, top) for top in system) and not any(_within(path, top) for top in hidden)

    return system, [path for path in own if not shown(path)]


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _bind(source: str, target: str) -> None:
    if os.path.isdir(source):
        os.makedirs(target, 0o755, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(source, target, flags=_MS_BIND | _MS_REC)


def build_root(config: dict[str, Any]) -> None:
    """Make and enter a root with nothing but the system's libraries, this interpreter, /proc, /dev and /tmp.

    The private tree stands one folder below the mount namespace's root, and is entered by chroot after
    pivot_root has detached the old root: a process in a chroot may not make user namespaces.
    """
    system, own = _sources(config["hide"])
    base = next(p for p in ("/tmp", "/mnt", "/run", "/var/tmp") if os.path.isdir(p) and p not in own)
    if any(_within(path, base) for path in own):
        base = next(p for p in ("/mnt", "/run", "/media", "/srv") if os.path.isdir(p))
    mount("none", "/", flags=_MS_REC | _MS_PRIVATE)
    mount("tmpfs", base, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=1m,nr_inodes=256")
    root = base + "/root"
    os.mkdir(root, 0o755)
    for path in system:
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        else:
            _bind(path, root + path)
    for path in config["hide"]:
        if any(_within(path, top) and path != top for top in system) and os.path.isdir(root + path):
            mount("tmpfs", root + path, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=64k,nr_inodes=64")
    for path in own:
        _bind(path, root + path)
    for name in ("proc", "dev", "tmp"):
        os.mkdir(f"{root}/{name}", 0o755)
    for name in ("null", "zero", "urandom"):
        os.close(os.open(f"{root}/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o644))
    attributes = (ctypes.c_uint64 * 4)(_MS_RDONLY | _MS_NOSUID | _MS_NODEV, 0, 0, 0)
    check(
        "mount_setattr (Linux 5.12 or later is needed)",
        libc.syscall(_SYS_MOUNT_SETATTR, _AT_FDCWD, base.encode(), _AT_RECURSIVE, attributes, 32),
    )
    for name in ("null", "zero", "urandom"):
        mount(f"/dev/{name}", f"{root}/dev/{name}", flags=_MS_BIND)
    _mount_proc(root + "/proc")
    private = f"mode=1777,size={config['tmp_bytes']},nr_inodes={config['tmp_inodes']}"
    mount("tmpfs", root + "/tmp", "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, private)
    os.chdir(base)
    check("pivot_root", libc.pivot_root(b".", b"."))
    check("umount the old root", libc.umount2(b".", 2))
    os.chroot("/root")
    os.chdir("/tmp")


def _mount_proc(target: str) -> None:
    """A /proc of this namespace only; where the kernel refuses even that (a masked /proc), none at all."""
    for options in ("hidepid=2,subset=pid", "hidepid=2", ""):
        try:
            return mount("proc", target, "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, options)
        except OSError:
            continue
