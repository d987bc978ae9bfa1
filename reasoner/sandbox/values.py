"""Reads the tagged trees in which values leave the sandbox (written by `inside/harness.py`).

What arrives was written by a hostile process: anything that is not exactly a tree of builtin values within
the limits raises `BadTreeError`. Nothing is looked up by name and nothing is executed.
"""

from typing import Any

MAX_DEPTH = 110
MAX_HASHED = 10_000
"""Entries of all sets and dicts of one value: many keys of equal hash would cost quadratic time here."""


class BadTreeError(ValueError):
    """The tree is not one that an honest harness writes."""


class IteratedValues(list[Any]):
    """The values of an iterator (a generator, `map`, `range`, …): not equal to any list of a test."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = None


def decode(tree: Any) -> Any:
    """The value of a tree: None, bool, int, float, complex, str, bytes, list, tuple, set, frozenset, dict."""
    return _Decoder().decode(tree, 0)


class _Decoder:
    def __init__(self) -> None:
        self.hashed = 0

    def decode(self, tree: Any, depth: int) -> Any:
        if depth > MAX_DEPTH:
            raise BadTreeError("nested too deeply")
        if tree is None or isinstance(tree, (bool, int, str)):
            return tree
        if isinstance(tree, list):
            return [self.decode(item, depth + 1) for item in tree]
        if not isinstance(tree, dict) or len(tree) != 1:
            raise BadTreeError("not a tagged value")
        [(tag, body)] = tree.items()
        try:
            return self._tagged(tag, body, depth + 1)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadTreeError(f"tag {tag[:8]!r}: {type(error).__name__}") from None

    def _tagged(self, tag: str, body: Any, depth: int) -> Any:
        if tag == "i":
            return int(_text(body), 16)
        if tag == "f":
            return float(_text(body))
        if tag == "c":
            real, imaginary = body
            return complex(float(_text(real)), float(_text(imaginary)))
        if tag == "b":
            return bytes.fromhex(_text(body))
        if not isinstance(body, list):
            raise TypeError("a list is needed")
        if tag == "d":
            return self._dict(body, depth)
        items = [self.decode(item, depth) for item in body]
        if tag == "t":
            return tuple(items)
        if tag == "n":
            return IteratedValues(items)
        if tag in ("s", "z"):
            self._count(len(items))
            return set(items) if tag == "s" else frozenset(items)
        raise BadTreeError("unknown tag")

    def _dict(self, pairs: list[Any], depth: int) -> dict[Any, Any]:
        self._count(len(pairs))
        found: dict[Any, Any] = {}
        for key, item in pairs:
            found[self.decode(key, depth)] = self.decode(item, depth)
        return found

    def _count(self, entries: int) -> None:
        self.hashed += entries
        if self.hashed > MAX_HASHED:
            raise BadTreeError("too many entries")


def _text(body: Any) -> str:
    if not isinstance(body, str):
        raise TypeError("a string is needed")
    return body
