"""What differs between two calls of one stage, followed through their inputs to where it began."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from reasoner.ids import canonical_json
from reasoner.lineage.calls import Call, is_ref
from reasoner.records import ArtifactRef

ABSENT = "(absent)"
OUTSIDE = "outside"
"""The change of a call whose key alone differs: something that an older artifact did not write down."""
Find = Callable[[ArtifactRef], Call | None]
Leaf = tuple[str, Any]


@dataclass(frozen=True)
class Change:
    """One input that is another one. For an artifact `because` says why, `stage` which call made it."""

    path: str
    before: Any
    after: Any
    stage: str = ""
    because: tuple["Change", ...] = ()
    note: str = ""

    def roots(self) -> Iterator["Change"]:
        """Where it began: changes of settings, versions, files, content or environment."""
        if not self.because:
            yield self
        for change in self.because:
            yield from change.roots()

    def to_row(self) -> dict[str, Any]:
        row = {"path": self.path, "before": _plain(self.before), "after": _plain(self.after), "stage": self.stage,
               "note": self.note, "because": [change.to_row() for change in self.because]}  # fmt: skip
        return {name: value for name, value in row.items() if value not in ("", [])}


def nearest(wanted: Call, kept: Iterable[Call], find: Find) -> Call | None:
    """The kept call with the fewest inputs that differ from those of `wanted`; of equals the newest."""
    found = [call for call in kept if call.stage == wanted.stage]
    # An epoch, a split or a strategy is what people mean by "the same stage": such a label counts first.
    return min(
        sorted(found, key=lambda call: call.created, reverse=True),
        key=lambda call: (call.label != wanted.label, len(_differences(call, wanted, find))),
        default=None,
    )


def changes(kept: Call, wanted: Call, find: Find) -> tuple[Change, ...]:
    """What makes `wanted` another call than `kept`, each changed artifact with its own reasons."""
    return _Walk(find).changes(kept, wanted)


def environment_changes(kept: Call, wanted: Call) -> tuple[Change, ...]:
    """What differs in packages, code and machine: no part of a key, but it can change content."""
    if not kept.environment or not wanted.environment:
        return ()
    before, after = (dict(_leaves(call.environment, "environment")) for call in (kept, wanted))
    return tuple(_compared(before, after))


class _Walk:
    """Remembers pairs of calls that were compared: inputs are shared by many stages."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._seen: dict[tuple[str, str], tuple[Change, ...]] = {}

    def changes(self, kept: Call, wanted: Call) -> tuple[Change, ...]:
        pair = (kept.key, wanted.key)
        if pair not in self._seen:
            self._seen[pair] = ()  # ends a walk in a circle, which content hashes do not allow
            found = _differences(kept, wanted, self._find)
            self._seen[pair] = tuple(self._explained(change) for change in found)
        return self._seen[pair]

    def _explained(self, change: Change) -> Change:
        before, after = change.before, change.after
        if not (isinstance(before, ArtifactRef) and isinstance(after, ArtifactRef)):
            return change
        one, other = self._find(before), self._find(after)
        if one is None or other is None:
            return replace(change, note="where it came from is not known")
        if one.stage != other.stage:
            return replace(change, stage=other.name, note=f"made by {other.name}, before by {one.name}")
        because = self.changes(one, other) or environment_changes(one, other)
        note = "" if because else "made from the same inputs, but with other content"
        if one.key == other.key and because:
            note = "made from the same inputs in another environment"
        return replace(change, stage=other.name, because=because, note=note)


def _differences(kept: Call, wanted: Call, find: Find) -> list[Change]:
    """Inputs that differ, without reasons."""
    if kept.key == wanted.key:
        return []
    found = list(_compared({"stage version": kept.version}, {"stage version": wanted.version}))
    found += _compared(*(dict(_inputs(call.arguments, find)) for call in (kept, wanted)))
    if kept.external is not None and wanted.external is not None:
        found += _compared(*(dict(_leaves(call.external, "")) for call in (kept, wanted)))
    if not found:
        note = "prompts, data files or a judge's version: the older artifact does not say what they were"
        found.append(Change(OUTSIDE, ABSENT, ABSENT, note=note))
    return found


def _compared(before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    for path in [*before, *(path for path in after if path not in before)]:
        one, other = before.get(path, ABSENT), after.get(path, ABSENT)
        if _identity(one) != _identity(other):
            yield Change(path, one, other)


def _identity(value: Any) -> str:
    return canonical_json(value)  # a reference counts by digest; 1 and 1.0 are two values, as in the key


def _inputs(arguments: dict[str, Any], find: Find) -> Iterator[Leaf]:
    for name, value in arguments.items():
        if isinstance(value, list | tuple) and value and all(map(is_ref, value)):
            yield from _named(name, value, find)
        else:
            yield from _leaves(value, name)


def _named(name: str, rows: Iterable[dict[str, Any]], find: Find) -> Iterator[Leaf]:
    """References in a list by what made them, so that one more does not move all the others."""
    count: dict[str, int] = {}
    for number, row in enumerate(rows):
        ref = ArtifactRef.from_row(row)
        call = find(ref)
        label = call.name if call else str(number)
        count[label] = count.get(label, 0) + 1
        yield f"{name}[{label}]" if count[label] == 1 else f"{name}[{label} #{count[label]}]", ref


def _leaves(value: Any, path: str) -> Iterator[Leaf]:
    """Every value with its dotted path; an empty mapping or list is a value."""
    if is_ref(value):
        yield path, ArtifactRef.from_row(value)
    elif isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{number}]")
    else:
        yield path, value


def _plain(value: Any) -> Any:
    return value.to_row() if isinstance(value, ArtifactRef) else value
