"""`reasoner verify`: verdicts as JSON Lines."""

import sys
from pathlib import Path
from typing import cast

from reasoner.errors import UsageError


def verify(kind: str, file: Path, workers: int | None, timeout: float | None) -> None:
    """Stream verdicts of the rows in `file` to standard output, in order."""
    if kind not in ("math", "code"):
        raise UsageError(f"verify takes math or code, not {kind!r}")
    from reasoner.verifiers import stream

    known = cast(stream.Kind, kind)
    if str(file) == "-":
        rows = stream.verify_lines(known, sys.stdin, workers=workers, timeout=timeout)
    elif file.is_file():
        rows = stream.verify_file(known, file, workers=workers, timeout=timeout)
    else:
        raise UsageError(f"no file {file}; give a JSON Lines file, or - for standard input")
    stream.write_verdicts(rows, sys.stdout)
