"""Child program: runs untrusted source and reports plain values, one JSON object a line.

It stands in the same process as the untrusted program, so nothing it says is believed further than a value
can be: what is expected never enters this process. It keeps the functions that it needs, and the jail runs it
with its own copy of the builtins, so that a program that patches `len` or `json` harms only itself.

Values travel as a tagged tree (the reader is `reasoner.sandbox.values`): null, true, false, strings, small
integers and lists as in JSON; everything else as an object with one key: {"i": hex}, {"f": repr},
{"c": [re, im]}, {"b": hex}, {"t": tuple}, {"s": set}, {"z": frozenset}, {"d": [[key, value], …]},
{"n": iterated values}. Subclasses of the builtin types are turned into them. No method of a foreign object is
called but `__str__` of an exception and, where iterators are asked for, `__iter__` and `__next__`.
"""

from __future__ import annotations

import _json
import marshal
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes longer than all the rest
    from typing import Any

MAX_DEPTH = 100
MAX_ENTRIES = 10_000
MAX_ITERATED = 10_000

_exit, _getpid, _os_read, _os_write, _loads = os._exit, os.getpid, os.read, os.write, marshal.loads
_quote = _json.encode_basestring_ascii
_type_name = vars(type)["__name__"].__get__
_Base = BaseException
_VIEWS: tuple[type, ...] = (range, type({}.keys()), type({}.values()), type({}.items()))


def _tagged(tag: str, body: str) -> str:
    return '{"' + tag + '":' + body + "}"


class Unplain(Exception):
    """A value that is not plain data, or too large; the argument says what it is."""


class Writer:
    """Encodes one value as a tagged tree within a budget of characters."""

    def __init__(self, budget: int, iterators: bool = False) -> None:
        self.budget = budget
        self.iterators = iterators

    def encode(self, value: Any, depth: int = 0) -> str:
        """The text of `value`; raises Unplain."""
        if depth > MAX_DEPTH:
            raise Unplain("a value that is nested too deeply")
        kind = type(value)
        text = self._scalar(value, kind)
        self._spend(2 if text is None else len(text))
        return self._container(value, kind, depth + 1) if text is None else text

    def _spend(self, characters: int) -> None:
        self.budget -= characters
        if self.budget < 0:
            raise Unplain("a value that is too large")

    def _scalar(self, value: Any, kind: type) -> str | None:
        if value is None:
            return "null"
        if kind is bool:
            return "true" if value else "false"
        if issubclass(kind, int):
            return self._integer(int.__add__(value, 0))
        if issubclass(kind, str):
            self._fits(str.__len__(value))
            return str(_quote(str.__str__(value)))
        if issubclass(kind, float):
            return _tagged("f", f'"{float.__repr__(float.__float__(value))}"')
        if kind is complex:
            return _tagged("c", f'["{value.real!r}","{value.imag!r}"]')
        if issubclass(kind, bytes):
            self._fits(bytes.__len__(value))
            return _tagged("b", f'"{bytes.hex(value)}"')
        return None

    def _fits(self, characters: int) -> None:
        if characters > self.budget:
            raise Unplain("a value that is too large")

    def _integer(self, value: int) -> str:
        bits = value.bit_length()
        if bits <= 50:
            return str(value)
        self._fits(bits // 4)
        return _tagged("i", f'"{value:x}"')

    def _container(self, value: Any, kind: type, depth: int) -> str:
        if issubclass(kind, list):
            return self._sequence(list.__iter__(value), depth)
        if issubclass(kind, tuple):
            return _tagged("t", self._sequence(tuple.__iter__(value), depth))
        if issubclass(kind, dict):
            if dict.__len__(value) > MAX_ENTRIES:
                raise Unplain("a value that is too large")
            pairs = [
                f"[{self.encode(key, depth)},{self.encode(item, depth)}]" for key, item in dict.items(value)
            ]
            return _tagged("d", "[" + ",".join(pairs) + "]")
        if issubclass(kind, (set, frozenset)):
            base: Any = set if issubclass(kind, set) else frozenset
            if base.__len__(value) > MAX_ENTRIES:
                raise Unplain("a value that is too large")
            return _tagged("s" if base is set else "z", self._sequence(base.__iter__(value), depth))
        if (
            self.iterators
            and depth == 1
            and (kind in _VIEWS or any("__next__" in vars(base) for base in type.mro(kind)))
        ):
            return _tagged("n", self._sequence(iter(value), depth, MAX_ITERATED))
        raise Unplain(str(_type_name(kind))[:80])

    def _sequence(self, items: Any, depth: int, most: int = 1 << 30) -> str:
        parts = []
        for item in items:
            most -= 1
            if most < 0:
                raise Unplain("a value that does not end")
            parts.append(self.encode(item, depth))
        return "[" + ",".join(parts) + "]"


class Channel:
    """Frames in (length and marshal, from the trusted parent), lines of JSON out.

    A process that the program forked runs on in this code too: it must not answer, so it ends.
    """

    def __init__(self, source: int, sink: int, budget: int) -> None:
        self.source, self.sink, self.budget = source, sink, budget
        self.owner = _getpid()

    def read(self) -> Any:
        """The next frame; this process ends where there is none."""
        size = int.from_bytes(self._exactly(4), "big")
        return _loads(self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = _os_read(self.source, size)
            if not part:
                _exit(0)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def line(self, fields: str) -> None:
        if _getpid() != self.owner:
            _exit(0)
        data = memoryview(("{" + fields + "}\n").encode("ascii"))
        while data:
            data = data[_os_write(self.sink, data) :]

    def value(self, prefix: str, value: Any, iterators: bool = False) -> None:
        """Report a value, or that it is not plain."""
        try:
            text = Writer(self.budget, iterators).encode(value)
        except Unplain as error:
            return self.line(f'{prefix}"o":{_quote(str(error))}')
        except MemoryError:
            raise
        except Exception as error:  # a lying subclass
            return self.line(f'{prefix}"o":{_quote(str(_type_name(type(error))))}')
        self.line(f'{prefix}"v":{text}')

    def error(self, prefix: str, error: BaseException, status: str = "exception") -> None:
        """Report an exception by type and message."""
        if isinstance(error, MemoryError):
            status = "memory"
        try:
            message = str.__str__(str(error))[:500]
        except _Base:
            message = ""
        name = _quote(str(_type_name(type(error)))[:80])
        self.line(f'{prefix}"e":"{status}","x":{name},"m":{_quote(message)}')


def load(channel: Channel, sources: list[tuple[str, str]]) -> dict[str, Any] | None:
    """Run each (name, source) in one fresh `__main__`; its globals, or None after reporting a failure."""
    module = type(sys)("__main__")
    sys.modules["__main__"] = module
    space = vars(module)
    space["__builtins__"] = sys.modules["builtins"]
    for name, source in sources:
        try:
            code = compile(source, f"<{name}>", "exec", dont_inherit=True)
        except MemoryError as error:
            channel.error("", error)
            return None
        except Exception as error:
            channel.error("", error, "syntax_error")
            return None
        try:
            exec(code, space)
        except _Base as error:
            channel.error("", error)
            return None
    return space


def run_program(job: dict[str, Any], channel: Channel) -> None:
    """Program of thought: report `repr(float(answer))`, of `answer` or else of what `solution()` returns."""
    space = load(channel, [("program", job["source"])])
    if space is None:
        return
    try:
        if "answer" in space:
            answer = space["answer"]
        elif "solution" in space:
            answer = space["solution"]()
        else:
            return channel.line('"o":"no answer"')
        if answer is None or isinstance(answer, (bool, complex, bytes, bytearray)):
            return channel.line(f'"o":{_quote(str(_type_name(type(answer))))}')
    except _Base as error:
        return channel.error("", error)
    try:
        number = float(answer)
    except (TypeError, ValueError, OverflowError) as error:
        return channel.error("", error, "bad_value")
    except _Base as error:
        return channel.error("", error)
    if number != number or number in (float("inf"), float("-inf")):
        return channel.line('"o":"a number that is not finite"')
    channel.line(f'"r":{_quote(float.__repr__(float(number)))}')


def serve(job: dict[str, Any], channel: Channel) -> None:
    """Load the candidate and its set-up, then evaluate what each frame asks for, in that one namespace."""
    sources = [("candidate", job["source"])]
    if job["setup"]:
        sources.append(("setup", job["setup"]))
    space = load(channel, sources)
    if space is None:
        return
    channel.line('"loaded":true')
    while True:
        frame = channel.read()
        prefix = f'"id":{frame["id"]},'
        try:
            if "expression" in frame:
                value = eval(compile(frame["expression"], "<call>", "eval", dont_inherit=True), space)
                channel.value(prefix, value)
            else:
                call(frame, space, channel, prefix)
        except _Base as error:
            channel.error(prefix, error)


def call(frame: dict[str, Any], space: dict[str, Any], channel: Channel, prefix: str) -> None:
    """A call with plain arguments; what it did to those arguments is reported as well."""
    positional, named = frame["args"], frame["kwargs"]
    before = _encoded(channel, positional)
    value = eval(frame["name"], space)(*positional, **named)
    after = _encoded(channel, positional)
    changed = f'"a":{after},' if after is not None and after != before else ""
    channel.value(prefix + changed, value, iterators=True)


def _encoded(channel: Channel, value: Any) -> str | None:
    try:
        return Writer(channel.budget).encode(value)
    except Unplain:
        return None


MODES: dict[str, Any] = {"program": run_program, "serve": serve}


def run(job: dict[str, Any], source: int, sink: int) -> None:
    """Do the job and end at once: no exit handlers, no waiting for threads, no finalizers."""
    try:
        channel = Channel(source, sink, job["budget"])
        MODES[job["mode"]](job, channel)
        _exit(0)
    finally:
        _exit(1)
