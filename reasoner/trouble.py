"""What the machine refused (space, permission, memory), told in a line with what to do; `None` for anything else.

Libraries in C++ or Rust say these things in their own words and classes, so a text is looked at, too, and the disk.
"""

import errno
import shutil
from pathlib import Path

from reasoner.errors import InfrastructureError

AGAIN = "then run the same command again: what was finished is kept"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
MEMORY_WORDS = (
    "not enough memory",
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    "out of memory",
)
FULL_WORDS = ("no space left", "os error 28", "quota exceeded")
NEARLY_NOTHING = 64 << 10
"""Bytes free under which a failed write is blamed on a full disk."""


def machine_trouble(error: BaseException, folder: Path | None = None) -> InfrastructureError | None:
    """The error for what the machine refused, or None. `folder` is where was written: a full disk there explains it."""
    text = str(error).lower()
    where = getattr(error, "filename", None) or folder
    number = getattr(error, "errno", None) if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM or any(word in text for word in MEMORY_WORDS):
        return InfrastructureError(
            f"out of memory ({type(error).__name__}). Close other programs or use a smaller model, length or batch, "
            f"{AGAIN}."
        )
    if number in FORBIDDEN:
        return InfrastructureError(f"{error.strerror}: {where}. Make it writable for this user, {AGAIN}.")  # type: ignore[attr-defined]
    if (
        number in FULL
        or any(word in text for word in FULL_WORDS)
        or (folder is not None and disk_is_full(folder))
    ):
        return InfrastructureError(
            f"no space left on the disk of {where or 'the home folder'}. Free some, {AGAIN}."
        )
    if number == errno.EIO:
        return InfrastructureError(f"the disk of {where} fails ({error.strerror}). Mend it, {AGAIN}.")  # type: ignore[attr-defined]
    return None


def disk_is_full(folder: Path) -> bool:
    """Whether next to nothing is left where `folder` is, or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free < NEARLY_NOTHING
    except OSError:
        return False
