"""Keeps secrets out of what is written: logs, errors, reports, the output of child processes.

Covers the values of this process's own secret environment variables, and tokens of the common services by their shape.
`install` puts it before every handler of Python's logging; as a program it passes standard input on, redacted. Does not
find a secret that was encoded (base64, percent signs) or cut in pieces. Standard library only and loaded by path in
reasoner/process/guard.py, which imports nothing of this project.
"""

import logging
import os
import re
import select
import traceback
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

SECRET = re.compile(r"KEY|(^|_)TOKEN($|_)|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)", re.IGNORECASE)
"""Names of environment variables that hold a secret."""
SHAPES = {
    "a Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{30,}"),
    "an API key": re.compile(r"\bsk-[A-Za-z0-9_-]{32,}"),
    "an AWS key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a GitHub token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9_]{60,})"),
    "a GitLab token": re.compile(r"\bglpat-[A-Za-z0-9_-]{20,}"),
    "a Slack token": re.compile(r"\bxox[abposr]-[A-Za-z0-9-]{20,}"),
    "a Google key": re.compile(r"\bAIza[0-9A-Za-z_-]{35}"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "an address with a password": re.compile(r"://[^/\s:@\"']+:[^/\s@\"']{8,}@"),
    "a W&B key": re.compile(r"(?i)\b(?:wandb|wb)[a-z_]*(?:key|token)\W{1,6}[0-9a-f]{40}\b"),
}
MIN_LENGTH = 8
"""Shortest value of a secret variable that is looked for: shorter ones stand in text by chance."""
LONGEST_LINE = 1 << 16
IDLE_SECONDS = 0.5
"""A line without an end (a progress bar) is passed on after so long."""


def own_secrets(environment: Mapping[str, str] | None = None, min_length: int = MIN_LENGTH) -> dict[str, str]:
    """Values of the secret environment variables by name, the longest first. Paths are none."""
    found = {
        name: value
        for name, value in (os.environ if environment is None else environment).items()
        if SECRET.search(name) and len(value) >= min_length and not value.startswith(("/", "~"))
    }
    return dict(sorted(found.items(), key=lambda item: -len(item[1])))


def find_secret(text: str) -> str | None:
    """What kind of secret stands in a text, in words that do not show it; None if there is none."""
    for name, value in own_secrets().items():
        if value in text:
            return f"the value of the environment variable {name}"
    return next((what for what, shape in SHAPES.items() if shape.search(text)), None)


def redact(text: str, secrets: Mapping[str, str] | None = None) -> str:
    """The text with `[redacted: WHAT]` in the place of every secret."""
    for name, value in (own_secrets() if secrets is None else secrets).items():
        if value in text:
            text = text.replace(value, f"[redacted: {name}]")
    for what, shape in SHAPES.items():
        if shape.search(text):
            text = shape.sub(f"[redacted: {what}]", text)
    return text


def install() -> None:
    """Redact every log record of this process before any handler sees it. Safe to repeat."""
    inner = logging.getLogRecordFactory()
    if getattr(inner, "redacts", False):
        return

    def factory(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = inner(*args, **kwargs)
        _clean(record)
        return record

    factory.redacts = True  # type: ignore[attr-defined]
    logging.setLogRecordFactory(factory)


def _clean(record: logging.LogRecord) -> None:
    try:
        said = record.getMessage()
    except Exception:  # arguments that don't fit: logging tells that itself
        return
    shown = redact(said)
    if shown != said:
        record.msg, record.args = shown, None
    if record.exc_info and record.exc_info[0] is not None:
        lines = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
        shown = redact(lines)
        if shown != lines:
            # A formatter takes this text instead of the exception; others must not find the exception.
            record.exc_info, record.exc_text = None, shown


class RedactingStream:
    """Bytes in, redacted bytes out, line by line."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        # Latin-1 takes every byte, so that a log in any encoding passes unchanged.
        self._secrets = {name: value.encode().decode("latin-1") for name, value in secrets.items()}
        self._rest = ""

    def feed(self, data: bytes) -> bytes:
        """What may be passed on now: whole lines, ended by a newline or a carriage return."""
        text = self._rest + data.decode("latin-1")
        end = max(text.rfind("\n"), text.rfind("\r")) + 1
        if end == 0 and len(text) > LONGEST_LINE:
            end = len(text) - self._open_end(text)
        self._rest = text[end:]
        return redact(text[:end], self._secrets).encode("latin-1")

    def idle(self) -> bytes:
        """The line so far, without an end that may be the beginning of a secret."""
        end = len(self._rest) - self._open_end(self._rest)
        text, self._rest = self._rest[:end], self._rest[end:]
        return redact(text, self._secrets).encode("latin-1")

    def end(self) -> bytes:
        text, self._rest = self._rest, ""
        return redact(text, self._secrets).encode("latin-1")

    def _open_end(self, text: str) -> int:
        """Length of the longest end of `text` that a secret begins with; a last word is kept back too."""
        longest = len(text) - (max(text.rfind(" "), text.rfind("=")) + 1)
        longest = min(longest, 256)
        for value in self._secrets.values():
            for size in range(min(len(value) - 1, len(text)), longest, -1):
                if text.endswith(value[:size]):
                    longest = size
                    break
        return longest


def copy(source: int, target: int, secrets: Mapping[str, str]) -> None:
    """Pass bytes from one descriptor to another until the source ends."""
    stream = RedactingStream(secrets)
    while True:
        ready, _, _ = select.select([source], [], [], IDLE_SECONDS)
        data = os.read(source, 1 << 16) if ready else b""
        _write(target, (stream.feed(data) if data else stream.end()) if ready else stream.idle())
        if ready and not data:
            return


def _write(target: int, data: bytes) -> None:
    """What a full disk refuses is lost: a copy that ended would hold up whoever writes to it, for ever."""
    with suppress(OSError):
        while data:
            data = data[os.write(target, data) :]


if __name__ == "__main__":
    copy(0, 1, own_secrets())
