"""Follows a flow without running it: which call each stage would be, and whether its artifact is kept.

The flow's own function is called, so what is told can't differ from the run. A stage whose artifact is not kept is
answered with what stands for it: a reference to something that is yet to be made (then the flow is followed until it
has to read such a thing to go on), or what the caller's `stand_in` gives. What takes it as an input is then another
call than before.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from reasoner.config.base import Section
from reasoner.engines.pool import EnginePool
from reasoner.errors import ArtifactError
from reasoner.home import Home
from reasoner.housekeeping.results import kept_result
from reasoner.lineage.calls import Call, ident
from reasoner.lineage.known import Known
from reasoner.lineage.why import FORGOTTEN, GONE, KEPT, STALE, Asked
from reasoner.records import ArtifactRef
from reasoner.store import Store, verify_ref
from tasks.context import RunContext, rehearsing
from tasks.stage import Stage

UNMADE = "unmade:"
StandIn = Callable[[Stage, dict[str, Any], Asked], ArtifactRef]
"""What stands for the artifact of a call that is not kept; `Asked.call.ref` is the one it had, if it is known."""


@dataclass
class Rehearsal:
    """The calls of a flow in their order, each once; `stopped` says why it could be followed no further, if so."""

    asked: list[Asked] = field(default_factory=list)
    stopped: str = ""

    def find(self, ref: ArtifactRef) -> Call | None:
        """The call that would make `ref`, or has made it, among those of this flow."""
        return next((a.call for a in self.asked if a.call.ref and ident(a.call.ref) == ident(ref)), None)


class _Context(RunContext):
    """A run that leaves nothing behind and asks `answer` for each stage's artifact."""

    answer: Callable[[Stage, dict[str, Any]], ArtifactRef]

    def rehearse(self, stage: Stage, arguments: dict[str, Any]) -> ArtifactRef:
        return self.answer(stage, arguments)

    def save_config(self, config: Section) -> None: ...

    def finish(self, report: ArtifactRef, model: ArtifactRef | None = None) -> None: ...

    def track(self, evaluations: Iterable[ArtifactRef]) -> None: ...


class _Unreadable:
    """A store that gives nothing: a flow reads artifacts itself only to show or send what it has made."""

    def __getattr__(self, name: str) -> Any:
        raise ArtifactError("it reads an artifact itself")


def rehearse(
    flow: Any, name: str, overrides: list[str], home: Home | None = None, stand_in: StandIn | None = None
) -> Rehearsal:
    """Follow `flow` with a configuration. Raises what it raises for a configuration or a data file that is wrong."""
    home, found = home or Home.from_environment(), Rehearsal()
    known = Known(Store(home.artifacts))
    by_key = {call.key: call for call in map(known.manifest_call, known.store.list()) if call is not None}
    answered: dict[str, ArtifactRef] = {}

    def answer(stage: Stage, arguments: dict[str, Any]) -> ArtifactRef:
        call = stage.call(arguments, _label(stage, arguments, found))
        if call.key not in answered:
            asked = _look_up(home, call, by_key)
            if asked.state != KEPT and stand_in is not None:
                asked = replace(asked, call=replace(asked.call, ref=stand_in(stage, arguments, asked)))
            elif asked.call.ref is None:
                unmade = ArtifactRef(stage.kind, UNMADE + call.key, UNMADE + call.key)
                asked = replace(asked, call=replace(asked.call, ref=unmade))
            assert asked.call.ref is not None
            found.asked.append(asked)
            answered[call.key] = asked.call.ref
        return answered[call.key]

    context: Any = _Context(home, known.store, EnginePool(home.path / "logs"), home.runs)
    context.answer = answer
    if stand_in is None:
        context.store = _Unreadable()
    with rehearsing(context):
        try:
            flow.fn(name, overrides)
        except ArtifactError as error:
            if stand_in is not None:
                raise
            found.stopped = str(error)
    return found


def _look_up(home: Home, call: Call, by_key: dict[str, Call]) -> Asked:
    """How a call stands, with its artifact where one is known."""
    ref = kept_result(home, call.key)
    if ref is not None:
        try:
            verify_ref(ref)
        except ArtifactError as error:
            return Asked(replace(call, ref=ref), GONE, str(error))
        return Asked(replace(call, ref=ref), KEPT)
    made = by_key.get(call.key)
    if made is not None:
        return Asked(replace(call, ref=made.ref), FORGOTTEN, f"{home.results / call.key} is gone")
    return Asked(call, STALE)


def _label(stage: Stage, arguments: dict[str, Any], found: Rehearsal) -> str:
    """A label may be that of the stage that made an input, which is not there yet."""
    try:
        return stage.label(arguments)
    except ArtifactError:
        call = next(filter(None, map(found.find, Call("", "", 0, "", stage.encode(arguments)).refs())), None)
        return f"{stage.name} {call.label}" if call else stage.name
