"""Finds the program in a response. The text is never parsed as Python here: it is untrusted, and a parser may
crash on it; whether it compiles is found out in the sandbox."""

import re
from dataclasses import dataclass

PYTHON = frozenset({"", "python", "python3", "py", "py3", "python-repl", "ipython"})
_THOUGHT = re.compile(r"</think(?:ing)?>", re.IGNORECASE)
_FENCE = re.compile(r" {0,3}(?P<fence>`{3,}|~{3,})[ \t]*(?P<info>[^`\n]*?)[ \t]*")
_FENCE_IN_LINE = re.compile(r"[^`\n]*[^`\s][ \t]+(?P<fence>`{3,})(?P<info>python3?|py)[ \t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Extracted:
    """A program and whether it stood in a fence."""

    code: str
    fenced: bool


def extract_code(text: str, function: str = "") -> Extracted:
    """The program of a response.

    The last fenced block that defines `function`, else the last Python block, else the last block, else the
    whole text. A block that is not closed goes on to the end (a generation cut at its stop string). What
    stands in a closed thinking block does not count.
    """
    ends = list(_THOUGHT.finditer(text))
    text = (text[ends[-1].end() :] if ends else text).replace("\r\n", "\n")
    blocks = _blocks(text)
    if not blocks:
        return Extracted(text, False)
    codes = [code for language, code in blocks if language in PYTHON] or [code for _, code in blocks]
    defining = [code for code in codes if function and defines(code, function)]
    return Extracted((defining or codes)[-1], True)


def defines(code: str, function: str) -> bool:
    """Whether a line at the left margin starts the definition of `function` (or assigns it)."""
    return re.search(rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{re.escape(function)}\b", code, re.M) is not None


def _blocks(text: str) -> list[tuple[str, str]]:
    """(language, content) of each fenced block; a fence indented by four spaces or more is content."""
    blocks: list[tuple[str, str]] = []
    fence, language = "", ""
    content: list[str] = []
    for line in text.split("\n"):
        if not fence:
            match = _FENCE.fullmatch(line) or _FENCE_IN_LINE.fullmatch(line)
            if match:
                fence = match["fence"]
                language = (match["info"].split() or [""])[0].lower()
                content = []
        elif re.fullmatch(rf" {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}[ \t]*", line):
            blocks.append((language, "\n".join(content) + "\n"))
            fence = ""
        else:
            content.append(line)
    if fence:
        blocks.append((language, "\n".join(content) + "\n"))
    return blocks


def complete_prompt(prompt: str, completion: str, function: str) -> Extracted:
    """The program that a completion of a HumanEval-style prompt makes.

    Where the completion defines the function itself, the prompt's imports and helpers stand before it; else
    it is taken as the body, up to the first line that leaves it.
    """
    found = extract_code(completion, function)
    if defines(found.code, function):
        return Extracted(f"{prompt.rstrip()}\n    pass\n\n\n{found.code}", found.fenced)
    body = found.code
    first = next((line for line in body.split("\n") if line.strip()), "")
    if first and not first[0].isspace():
        body = "    " + body.lstrip()  # the first indentation is often lost by stripping
    return Extracted(prompt.rstrip() + "\n" + _body(body), found.fenced)


def _body(text: str) -> str:
    """The lines up to the first that stands at the margin and starts nothing that may follow a function."""
    lines = []
    for line in text.split("\n"):
        if line[:1].strip() and not re.match(r"(?:def|class|import|from|async)\b|[@#)\]}]|\"\"\"|'''", line):
            break
        lines.append(line)
    return "\n".join(lines) + "\n"
