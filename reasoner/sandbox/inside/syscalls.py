"""Child program, first part: system calls that Python has no function for, with errors that name the step.

The jail's parts run in one namespace, one behind the other: `syscalls.py`, `root.py`, `jail.py`.
"""

from __future__ import annotations

import ctypes
import os

libc = ctypes.CDLL(None, use_errno=True)
libc.mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


def check(step: str, result: int) -> None:
    """Raise OSError naming the step when a system call failed."""
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{step}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    result = libc.mount(
        source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None
    )
    check(f"mount {target}", result)


def prctl(step: str, option: int, value: int, third: int = 0) -> None:
    check(step, libc.prctl(option, value, third, 0, 0))


def write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def tell(text: str) -> None:
    os.write(2, (text.replace("\n", " ")[:500] + "\n").encode("utf-8", "replace"))
