"""The last lines of a log, and what they say of an error."""

import os
import re
from pathlib import Path

TAIL_LINES, TAIL_BYTES = 10, 8192
FRAME = re.compile(r'\s+File ".*", line \d+')


def tail(log: Path, start: int, lines: int = TAIL_LINES) -> list[str]:
    """The last lines that were written after byte `start`; none where the file can't be read."""
    try:
        with log.open("rb") as handle:
            size = handle.seek(0, os.SEEK_END)
            handle.seek(max(start, size - TAIL_BYTES))
            text = handle.read().decode(errors="replace")
    except OSError:
        return []
    # A progress bar rewrites its line with carriage returns.
    found = [line.rstrip() for line in text.replace("\r", "\n").split("\n") if line.strip()]
    return found[-lines:]


def last_words(log: Path, start: int) -> str:
    """Where the log is and how it ends, for an error message."""
    lines = without_traceback(tail(log, start))
    shown = "".join(f"\n  | {line}" for line in lines)
    return f"Log: {log}. " + (f"Its last lines:{shown}" if lines else "It wrote nothing.")


def without_traceback(lines: list[str]) -> list[str]:
    """The last lines of a log without the frames of a Python traceback: the error itself says what went wrong."""
    frames = [i for i, line in enumerate(lines) if FRAME.match(line)]
    if not frames:
        return lines
    # A first line that is indented stands in the middle of a traceback, of which the beginning was cut off.
    before = [] if lines[0].startswith((" ", "\t")) else lines[: frames[0]]
    said = [line for line in before if not line.startswith(("Traceback (", " ", "\t"))]
    ends = [i for i in range(frames[-1] + 1, len(lines)) if not lines[i].startswith((" ", "\t"))]
    return [*said, *lines[ends[0] :]] if ends else said
