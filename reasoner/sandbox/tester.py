"""Tests beyond `call == literal`, run in a second sandbox that asks the first one for plain values.

The parent stands between the two: it decodes what either says into builtin values and hands those on.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event

from reasoner.sandbox.answers import failure_of
from reasoner.sandbox.jobs import Limits, Result, Status
from reasoner.sandbox.process import Child, Stopped
from reasoner.sandbox.sandbox import Sandbox
from reasoner.sandbox.session import Session
from reasoner.sandbox.values import BadTreeError, IteratedValues, decode


@dataclass(frozen=True, slots=True)
class TesterJob:
    """Trusted statements and what they stand on.

    `stubs` maps names in the tests to names of the candidate; `modules` are imported; `preamble` runs first.
    """

    statements: Sequence[str]
    stubs: Mapping[str, str]
    modules: Sequence[str] = ()
    preamble: str = ""


@dataclass(slots=True)
class TestOutcome:
    """How one statement ended: `pass`, `assert_fail`, `unsupported` (the tests' fault), or a status word."""

    outcome: str
    detail: str = ""
    __test__ = False


@dataclass(slots=True)
class _Conversation:
    session: Session
    child: Child
    deadline: float
    outcomes: dict[int, TestOutcome] = field(default_factory=dict)
    broken: Result | None = None
    """Set where the candidate's process has ended: the statement in progress fails for that reason."""

    def step(self) -> None:
        line = self.child.receive(self.deadline)
        if "call" in line:
            self._call(str(line["call"]), line.get("a"))
        elif "test" in line:
            detail = ": ".join(part for part in (str(line.get("x", "")), str(line.get("m", ""))) if part)
            self.outcomes[int(line["test"])] = TestOutcome(str(line["outcome"]), detail)
        else:
            failed = failure_of(line, 0.0)
            raise Stopped(Status.HARNESS_ERROR, f"the tests' preamble failed: {failed and failed.message}")

    def _call(self, name: str, tree: object) -> None:
        try:
            args, kwargs = decode(tree)
        except (BadTreeError, RecursionError, TypeError, ValueError) as error:
            raise Stopped(Status.HARNESS_ERROR, f"the tests hand over {error}") from None
        result, changed = self.session.call(name, args, kwargs)
        if self.session.stopped is not None:
            self.broken = result
            return
        reply: dict[str, object] = {"changed": changed}
        if result.status is Status.OK and isinstance(result.value, IteratedValues):
            reply["iterated"] = list(result.value)
        elif result.status is Status.OK:
            reply["value"] = result.value
        elif result.status is Status.BAD_VALUE:
            reply["error"] = ("CandidateError", f"{name} returned {result.message}")
        else:
            reply["error"] = (result.type_name, result.message)
        self.child.send(reply)


def run_tests(
    sandbox: Sandbox,
    session: Session,
    job: TesterJob,
    limits: Limits,
    *,
    cancel: Event | None = None,
) -> list[TestOutcome]:
    """Run trusted statements against the candidate of `session`; one outcome a statement, in order.

    `limits` are those of the tester. What is not reached gets the status word of what stopped it: the
    candidate's where its process ended, else `timeout`, or `harness_error` where the tester itself failed.
    """
    request = {
        "mode": "test",
        "preamble": job.preamble,
        "modules": list(job.modules),
        "stubs": dict(job.stubs),
        "statements": list(enumerate(job.statements)),
    }
    outcomes: dict[int, TestOutcome] = {}
    try:
        with sandbox.start(request, limits, programs=("harness.py", "tester.py"), cancel=cancel) as child:
            talk = _Conversation(session, child, time.monotonic() + limits.wall_seconds, outcomes)
            while len(outcomes) < len(job.statements) and talk.broken is None:
                talk.step()
        rest = talk.broken or Result(Status.HARNESS_ERROR)
    except Stopped as stopped:
        # The tester runs trusted code: what it uses up can be the doing of what the candidate returned.
        status = stopped.status
        if status not in (Status.TIMEOUT, Status.MEMORY, Status.OUTPUT_LIMIT):
            status = Status.HARNESS_ERROR
        rest = Result(status, message=stopped.message)
    missing = TestOutcome(rest.status.value, f"{rest.type_name} {rest.message}".strip())
    return [outcomes.get(index, missing) for index in range(len(job.statements))]
