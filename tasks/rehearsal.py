"""Follows a flow without running it: which call each stage would be, and whether its artifact is kept.

A stage whose artifact is not kept is answered with a reference to something that is yet to be made; what takes it as an
input is then another call than before. A flow that has to read such an artifact to go on is followed as far as that.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
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


@dataclass
class Rehearsal:
    """The calls of a flow in their order; `stopped` says why it could be followed no further, if so."""

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

    def open(self, ref: ArtifactRef, full: bool = False) -> Path:
        raise ArtifactError(f"nothing is read in a rehearsal ({ref.kind})")


def rehearse(flow: Any, name: str, overrides: list[str]) -> Rehearsal:
    """Follow `flow` with a configuration. Raises what it raises for a configuration or a data file that is wrong."""
    home, found = Home.from_environment(), Rehearsal()
    known = Known(Store(home.artifacts))
    by_key = {call.key: call for call in map(known.manifest_call, known.store.list()) if call is not None}

    def answer(stage: Stage, arguments: dict[str, Any]) -> ArtifactRef:
        call = stage.call(arguments, _label(stage, arguments, found))
        asked = _look_up(home, call, stage.kind, by_key)
        found.asked.append(asked)
        assert asked.call.ref is not None
        return asked.call.ref

    context: Any = _Context(home, Store(home.artifacts), EnginePool(home.path / "logs"), home.runs)
    context.answer, context.store = answer, _Unreadable()
    with rehearsing(context):
        try:
            flow.fn(name, overrides)
        except ArtifactError as error:
            found.stopped = str(error)
    return found


def _look_up(home: Home, call: Call, kind: str, by_key: dict[str, Call]) -> Asked:
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
    return Asked(replace(call, ref=ArtifactRef(kind, UNMADE + call.key, UNMADE + call.key)), STALE)


def _label(stage: Stage, arguments: dict[str, Any], found: Rehearsal) -> str:
    """A label may be that of the stage that made an input, which is not there yet."""
    try:
        return stage.label(arguments)
    except ArtifactError:
        call = next(filter(None, map(found.find, Call("", "", 0, "", stage.encode(arguments)).refs())), None)
        return f"{stage.name} {call.label}" if call else stage.name
