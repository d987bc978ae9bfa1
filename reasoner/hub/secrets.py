"""Looks for secrets and machine paths in what is about to be published.

Covers: tokens of the common services by their shape, private keys, addresses with a password, and the values
of this process's own secret environment variables, in every text file of a folder. A file that could run code
when it is loaded is refused, too. Does not look inside safetensors weights, which hold numbers only, beyond
their text header.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reasoner.errors import PublishError
from reasoner.redaction import SHAPES, own_secrets

PUBLISHED = (".safetensors", ".json", ".jsonl", ".jinja", ".txt", ".md", ".model", ".gitattributes")
"""Kinds of files that may be published; all others are refused by name."""
MIN_SECRET = 12
"""Shortest value of a secret variable that is looked for: shorter ones stand in text by chance."""
HEADER = 1 << 22
"""Bytes at the start of a weight file that are looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Where something was found. The secret itself is never shown."""

    file: str
    line: int
    what: str


def scan(folder: Path, environment: Mapping[str, str] | None = None) -> list[Finding]:
    """Everything that must not be published, in the order of files. An empty list is a clean folder."""
    known = own_secrets(environment, MIN_SECRET)
    found = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink() or not path.name.endswith(PUBLISHED):
            found.append(Finding(name, 0, "a kind of file that is not published"))
            continue
        with path.open("rb") as handle:
            data = handle.read(HEADER) if path.suffix == ".safetensors" else handle.read()
        text = data.decode("utf-8", "replace")
        found.extend(_in_text(name, text, known))
    return found


def require_clean(folder: Path) -> None:
    """Raises PublishError that names the first finding."""
    found = scan(folder)
    if found:
        first = found[0]
        where = f"{first.file} line {first.line}" if first.line else first.file
        more = f" and {len(found) - 1} more places" if len(found) > 1 else ""
        raise PublishError(
            f"{folder}: {where} holds {first.what}{more}; nothing was pushed. Remove it and, if it is a secret, "
            "revoke it"
        )


def _in_text(name: str, text: str, known: Mapping[str, str]) -> list[Finding]:
    found = []
    for what, shape in SHAPES.items():
        if match := shape.search(text):
            found.append(Finding(name, _line(text, match.start()), what))
    for variable, value in known.items():
        if (at := text.find(value)) >= 0:
            found.append(Finding(name, _line(text, at), f"the value of the environment variable {variable}"))
    return found


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1
