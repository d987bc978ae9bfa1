"""`reasoner verify`: verdicts as JSON Lines."""

import sys
from pathlib import Path

from reasoner.errors import UsageError

KINDS = ("math", "code")


def verify(kind: str, file: Path, workers: int | None, timeout: float) -> None:
    """Stream verdicts of the rows in `file` to standard output, in order."""
    if kind not in KINDS:
        raise UsageError(f"verify takes math or code, not {kind!r}")
    from reasoner.verifiers import stream

    if str(file) == "-":
        stream.verify_lines(
            kind, sys.stdin, sys.stdout, source="standard input", workers=workers, timeout=timeout
        )
        return
    if not file.is_file():
        raise UsageError(f"no file {file}; give a JSON Lines file, or - for standard input")
    with file.open(encoding="utf-8") as rows:
        stream.verify_lines(kind, rows, sys.stdout, source=str(file), workers=workers, timeout=timeout)
