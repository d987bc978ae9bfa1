"""Child program: runs trusted tests whose function under test lives in another sandbox.

The jail runs it behind `harness.py`, in the same namespace. A stub stands for each function of the candidate:
it sends plain arguments out and gets plain values back, through the parent. So a test never touches an object
of the candidate's: one that equals everything, or counts its uses, does not arrive.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from reasoner.sandbox.inside.harness import MODES, Channel, Unplain, Writer, load


class CandidateIterator:
    """Stands for an iterator that the candidate returned."""

    def __init__(self, values: list[Any]) -> None:
        self._rest = iter(values)

    def __iter__(self) -> CandidateIterator:
        return self

    def __next__(self) -> Any:
        return next(self._rest)


class CandidateError(Exception):
    """The candidate raised an exception that is not a builtin one, or an AssertionError."""


class UnsupportedTestError(BaseException):
    """The test hands over something that is not plain data; nothing can be said of the candidate."""


class Stub:
    """Stands for one function of the candidate."""

    def __init__(self, name: str, channel: Channel) -> None:
        self._name, self._channel = name, channel

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            sent = Writer(self._channel.budget).encode((args, kwargs))
        except Unplain as error:
            iterated = any(isinstance(value, CandidateIterator) for value in (*args, *kwargs.values()))
            if iterated or str(error).startswith("a value"):
                # The candidate returned it: it must not be able to make a test unusable.
                raise CandidateError(f"{self._name} is given {error} that the candidate returned") from None
            raise UnsupportedTestError(f"{self._name} is given {error}") from None
        self._channel.line(f'"call":"{self._name}","a":{sent}')
        reply = self._channel.read()
        if reply.get("changed") is not None:
            for argument, changed in zip(args, reply["changed"], strict=True):
                put_back(argument, changed)
        if "error" in reply:
            raise exception(*reply["error"])
        return CandidateIterator(reply["iterated"]) if "iterated" in reply else reply["value"]

    def __getattr__(self, name: str) -> Any:
        raise UnsupportedTestError(f"{self._name}.{name} is an attribute of the candidate's")


def put_back(argument: Any, changed: Any) -> None:
    """Give a list, dict or set the content that the candidate left in it."""
    if type(argument) is not type(changed):
        return
    if isinstance(argument, list):
        argument[:] = changed
    elif isinstance(argument, (dict, set)):
        argument.clear()
        argument.update(changed)


def exception(name: str, message: str) -> Exception:
    """The exception that the candidate raised, where it is a builtin one that a test may expect."""
    kind = vars(sys.modules["builtins"]).get(name)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not AssertionError:
        try:
            return kind(message)
        except TypeError:  # such as UnicodeDecodeError
            pass
    return CandidateError(f"{name}: {message}")


def run_tests(job: dict[str, Any], channel: Channel) -> None:
    """Run each statement in one namespace and report `pass`, `assert_fail`, `exception` or `unsupported`."""
    space = load(channel, [("preamble", job["preamble"])])
    if space is None:
        return
    for name in job["modules"]:
        space[name] = __import__(name)
    for name, target in job["stubs"].items():
        space[name] = Stub(target, channel)
    for index, source in job["statements"]:
        error: BaseException | None = None
        try:
            exec(compile(source, "<test>", "exec", dont_inherit=True), space)
            outcome = "pass"
        except AssertionError as caught:
            outcome, error = "assert_fail", caught
        except UnsupportedTestError as caught:
            outcome, error = "unsupported", caught
        except BaseException as caught:
            outcome, error = "exception", caught
        prefix = f'"test":{index},"outcome":"{outcome}"'
        if error is None:
            channel.line(prefix)
        else:
            channel.error(prefix + ",", error)


MODES["test"] = run_tests
