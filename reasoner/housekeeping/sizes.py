"""How much a folder holds, and when it was last written to."""

import os
from pathlib import Path


def measure(folder: Path) -> tuple[int, float]:
    """Bytes of all files below `folder`, and the newest time of a file or folder in it (seconds since the epoch).

    Links are not followed; what disappears meanwhile counts nothing.
    """
    total, newest = 0, 0.0
    left = [folder]
    while left:
        one = left.pop()
        try:
            status = one.lstat()
            entries = list(os.scandir(one))
        except OSError:
            continue
        newest = max(newest, status.st_mtime)
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if entry.is_dir(follow_symlinks=False):
                left.append(Path(entry.path))
            else:
                total += status.st_size
                newest = max(newest, status.st_mtime)
    return total, newest


def shown(size: float) -> str:
    """`1.2 GB`: three digits and a decimal unit."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
