"""One line of a journal: JSON that carries its own length and checksum.

    {"crc":"1f2e3d4c","len":"0000007b","row":{…}}

The head has a fixed width, so that a line is checked and its key read without parsing the JSON; the line as a
whole is ordinary JSON for people and tools. `len` and `crc` (crc32, both hexadecimal) are of the bytes of
`row`.
"""

import json
import zlib
from typing import Any

HEAD = len(b'{"crc":"00000000","len":"00000000","row":')
_TAIL = b"}\n"
_LENGTH = slice(25, 33)
_CRC = slice(8, 16)


def pack(row: dict[str, Any]) -> bytes:
    """A row as one line, line feed included. The order of its keys is kept: the first tells what it is."""
    text = json.dumps(row, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    try:
        body = text.encode()
    except UnicodeEncodeError:
        # A lone surrogate in a model's text exists in JSON only as an escape.
        body = json.dumps(row, separators=(",", ":"), allow_nan=False).encode()
    return b'{"crc":"%08x","len":"%08x","row":%b}\n' % (zlib.crc32(body), len(body), body)


def body_of(line: bytes) -> bytes | None:
    """The bytes of the row in a line, or None if the line is torn or altered."""
    if line[-2:] != _TAIL:
        return None
    body = line[HEAD:-2]
    if line[:HEAD] != b'{"crc":"%08x","len":"%08x","row":' % (zlib.crc32(body), len(body)):
        return None
    return body


def line_length(head: bytes) -> int | None:
    """How long the line that begins with `head` says it is, or None if that is not the head of a line."""
    try:
        return HEAD + int(head[_LENGTH], 16) + len(_TAIL)
    except ValueError:
        return None
