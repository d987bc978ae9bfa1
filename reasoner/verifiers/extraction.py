"""Where a response states its answer: the last box, the last marker, and what was withdrawn.

Covers `\\boxed{}` and `\\fbox{}` with balanced braces, thinking blocks, and markers ("the answer is",
"Answer:", "####"). Every function is one linear pass: 100,000 nested braces or 10,000 boxes cost
milliseconds. It says where an answer stands, not what it means; that is numbers.py and math.py.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_BOX_OR_BRACE = re.compile(r"\\(?:boxed|fbox)\s*+\{|\\.|[{}]", re.DOTALL)
_SHORT_BOX = re.compile(r"\\(?:boxed|fbox)\s*+([0-9])(?![0-9])")
_THINK_END = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_MARKER = re.compile(
    r"\banswers?\b[\s*_]{0,4}(?:is\b|are\b|was\b|would be\b|:|=)|\bfinal answer\b|####",
    re.IGNORECASE,
)
_PUNCTUATION = " \t\r\n:=*_#"


@dataclass(frozen=True, slots=True)
class Box:
    """The content of a box and where the whole box stands: `text[start:end]`."""

    content: str
    start: int
    end: int


def boxes(text: str) -> list[Box]:
    """The balanced boxes of `text` in order, outermost only."""
    open_: list[tuple[int, int] | None] = []
    found: list[Box] = []
    for match in _BOX_OR_BRACE.finditer(text):
        token = match[0]
        if token == "{":
            open_.append(None)
        elif token.startswith(("\\boxed", "\\fbox")):
            open_.append((match.start(), match.end()))
        elif token == "}" and open_ and (box := open_.pop()):
            while found and found[-1].start > box[0]:
                found.pop()
            found.append(Box(text[box[1] : match.start()], box[0], match.end()))
    if not found:
        found = [Box(m[1], m.start(), m.end()) for m in _SHORT_BOX.finditer(text)]
    return found


def last_box(text: str) -> str | None:
    """What stands in the last balanced, non-empty box, or None."""
    for box in reversed(boxes(text)):
        if box.content.strip():
            return box.content
    return None


def without_thinking(text: str) -> str:
    """The text behind the last closed thinking block; the whole text where none is closed."""
    ends = list(_THINK_END.finditer(text))
    return text[ends[-1].end() :] if ends else text


def answer_texts(text: str) -> Iterator[str]:
    """What follows each explicit answer marker up to the next one, the last marker first."""
    end = len(text)
    for match in reversed(list(_MARKER.finditer(text))):
        yield text[match.end() : end].lstrip(_PUNCTUATION)
        end = match.start()
