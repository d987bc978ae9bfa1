"""Why a stage has to run, or had to: its call beside the nearest artifact of that stage which is kept."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.home import Home
from reasoner.lineage.calls import Call
from reasoner.lineage.cause import OUTSIDE, Change, Find, changes, environment_changes, nearest
from reasoner.lineage.known import Known, journals
from reasoner.provenance import environment
from reasoner.records import ArtifactRef
from reasoner.store import Store

KEPT, GONE, FORGOTTEN, STALE = "kept", "gone", "forgotten", "stale"
"""Of a call that is to come: taken from the cache; its artifact, or its cached result, is gone; other inputs."""
MADE, STARTED, CACHED = "made", "started", "cached"
"""Of a call of a run: it was computed, it is or was being computed, it was taken from the cache."""
TO_RUN = (GONE, FORGOTTEN, STALE)
LONGEST = 60


@dataclass(frozen=True)
class Asked:
    """A call and how it stands. `detail` says what is gone."""

    call: Call
    state: str
    detail: str = ""


@dataclass(frozen=True)
class Answer:
    """What is known of one call. `near` is the kept call that it was compared with."""

    asked: Asked
    near: Call | None = None
    changes: tuple[Change, ...] = ()
    environment: tuple[Change, ...] = ()

    def to_row(self) -> dict[str, Any]:
        """Plain data; `roots` are the changes in which it all began."""
        call, near = self.asked.call, self.near
        return {
            "stage": call.stage, "label": call.label, "key": call.key, "state": self.asked.state,
            "detail": self.asked.detail,
            "nearest": {"key": near.key, "created": near.created, "ref": near.ref.to_row()} if near and near.ref
            else None,
            "changes": [change.to_row() for change in self.changes],
            "roots": [{k: v for k, v in c.to_row().items() if k != "because"} for c in _roots(self.changes)],
            "environment": [change.to_row() for change in self.environment],
        }  # fmt: skip


def explain(asked: Asked, kept: Iterable[Call], find: Find, surroundings: dict[str, Any]) -> Answer:
    """Compare a call with what is kept. `surroundings`: packages, code and machine of now, or of when it was made."""
    if asked.state in (KEPT, CACHED, GONE, FORGOTTEN):
        return Answer(asked)
    others = [call for call in kept if call.key != asked.call.key]
    near = nearest(asked.call, others, find)
    if near is None:
        return Answer(asked)
    here = Call(asked.call.stage, "", 0, "", {}, environment=surroundings)
    return Answer(asked, near, changes(near, asked.call, find), environment_changes(near, here))


def answers(home: Home, asked: Sequence[Asked], calls: Sequence[Call], before: str = "") -> list[Answer]:
    """Explain each call by what is kept in `home`. `calls` tell, before the store does, what made an input.

    `before`: only artifacts made before this moment (UTC, ISO 8601) were kept at the time; empty: all.
    """
    known = Known(Store(home.artifacts), calls)
    rows = [row for _, found in journals(home) for row in found]
    kept: dict[str, list[Call]] = {}
    found, now = [], environment()
    for one in asked:
        stage = one.call.stage
        if stage not in kept:
            there = known.all(stage, rows)
            kept[stage] = [call for call in there if not before or call.created[:19] < before[:19]]
        made = known.manifest_call(one.call.ref) if one.state == MADE and one.call.ref else None
        found.append(explain(one, kept[stage], known.call, made.environment if made else now))
    return found


def short(answer: Answer) -> str:
    """The reasons in a few words, without where they came from."""
    if answer.asked.state == GONE:
        return "its artifact is gone or altered"
    if answer.asked.state == FORGOTTEN:
        return "its cached result was removed"
    names = [change.note if change.path == OUTSIDE else change.path for change in answer.changes]
    return f"inputs changed: {', '.join(names[:4])}{' …' if len(names) > 4 else ''}"


def lines(answers: Sequence[Answer]) -> Iterator[str]:
    """The answers as text; calls with the same reasons are told together."""
    groups: dict[tuple[str, ...], list[Answer]] = {}
    for answer in answers:
        body = tuple(_body(answer))
        # Without reasons it is the state that calls have in common; what is gone is told one by one.
        groups.setdefault(body or (answer.asked.state, answer.asked.detail), []).append(answer)
    for group in groups.values():
        body = tuple(_body(group[0]))
        names = [answer.asked.call.name for answer in group]
        yield f"{', '.join(names)}: {_head(group[0])}"
        yield from body


def _head(answer: Answer) -> str:
    state, near = answer.asked.state, answer.near
    if state in (KEPT, CACHED):
        ref = answer.asked.call.ref
        taken = "is kept" if state == KEPT else "was taken from the cache"
        return f"{taken} ({ref.kind} {ref.digest[:12]})" if ref else taken
    if state == GONE:
        return f"has to run again: {answer.asked.detail}"
    if state == FORGOTTEN:
        return f"has to run again: its cached result was removed ({answer.asked.detail})"
    verb = {STALE: "has to run", MADE: "had to run", STARTED: "has to run"}[state]
    if near is None:
        return f"{verb}: nothing of this stage is kept to compare with, it is the first"
    ref = near.ref
    return f"{verb}; the nearest that is kept is {near.name}, {ref.kind if ref else ''} " + (
        f"{ref.digest[:12] if ref else ''} of {near.created[:19]}"
    )


def _body(answer: Answer) -> Iterator[str]:
    if answer.near is None:
        return
    seen: set[int] = set()
    yield from _tree(answer.changes, "  ", seen)
    if answer.environment:
        told = ", ".join(_change(change) for change in answer.environment[:4])
        more = f" and {len(answer.environment) - 4} more" if len(answer.environment) > 4 else ""
        yield f"  also, but no part of the key: {told}{more}"


def _tree(found: Sequence[Change], indent: str, seen: set[int]) -> Iterator[str]:
    for change in found:
        if not isinstance(change.after, ArtifactRef) or not isinstance(change.before, ArtifactRef):
            yield f"{indent}{_change(change)}"
            continue
        what = f"{indent}{change.path}: another {change.after.kind}"
        note = f", {change.note}" if change.note else ""
        if not change.because:
            yield f"{what}{note}"
        elif id(change.because) in seen:
            yield f"{what}{note}, as said above of {change.stage}"
        else:
            seen.add(id(change.because))
            yield f"{what}{note}, because of {change.stage}:"
            yield from _tree(change.because, indent + "  ", seen)


def _change(change: Change) -> str:
    if change.note:
        return f"{change.path}: {change.note}"
    return f"{change.path}: {_shown(change.before)} -> {_shown(change.after)}"


def _shown(value: Any) -> str:
    if isinstance(value, ArtifactRef):
        return f"{value.kind} {value.digest[:12]}"
    text = str(value) if not isinstance(value, str) or value else "''"
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def _roots(found: Iterable[Change]) -> list[Change]:
    """Each root once."""
    unique: dict[tuple[str, str, str], Change] = {}
    for change in found:
        for root in change.roots():
            unique.setdefault((root.path, str(root.before), str(root.after)), root)
    return list(unique.values())
