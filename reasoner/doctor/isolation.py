"""The sandbox: whether programs can be run here at all, what its self-test saw stopped, and what is not there."""

from collections.abc import Iterator

from reasoner.doctor.check import Check, State
from reasoner.errors import SandboxUnavailableError
from reasoner.sandbox import Sandbox
from reasoner.sandbox.selftest import Check as Wall
from reasoner.sandbox.selftest import self_test

STATES = {True: State.OK, False: State.MISSING, None: State.NOTE}
ADVICE = {
    "seccomp filter": "install libseccomp (Debian: libseccomp2) for a second wall; the namespaces hold without it",
    "unprivileged user": "this user's own number is used, without any privilege",
}
BREACH = "do not run programs here; report this with `reasoner doctor --json`"


def sandbox() -> Iterator[Check]:
    """The backend and every wall. Without a sandbox a run stops at its first program."""
    try:
        backend = Sandbox.detect().backend
        walls = self_test()
    except SandboxUnavailableError as error:
        yield Check("sandbox", "backend", State.MISSING, *_split(str(error)))
        return
    yield Check("sandbox", "backend", State.OK, backend)
    for wall in walls:
        yield _check(wall)


def _check(wall: Wall) -> Check:
    words = {True: "holds", False: "DOES NOT HOLD", None: "not available here"}[wall.passed]
    detail = f"{words} ({wall.detail})" if wall.detail else words
    advice = {True: "", False: BREACH, None: ADVICE.get(wall.name, "")}[wall.passed]
    return Check("sandbox", wall.name, STATES[wall.passed], detail, advice)


def _split(message: str) -> tuple[str, str]:
    """What is wrong and what to allow, of the error's one line."""
    wrong, _, advice = message.partition("; ")
    return wrong, advice
