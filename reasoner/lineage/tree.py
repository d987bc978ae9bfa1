"""An artifact with everything that it was made from, down to problems, seeds, configurations and the base model."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic_core import PydanticUndefined

from reasoner.config.base import Section
from reasoner.lineage.calls import Call, ident, is_ref, refs_of
from reasoner.lineage.known import Known
from reasoner.records import ArtifactRef

OWN = ("stage", "label", "version", "key", "arguments", "external", "environment")
"""What every manifest of a stage holds; the rest is what the stage found."""


@dataclass
class Node:
    """One artifact. `inputs` are by argument; a node that stands further up too is `repeated` and has none here."""

    ref: ArtifactRef
    call: Call | None
    facts: dict[str, Any] = field(default_factory=dict)
    """What the stage found: counts, seconds, metrics."""
    bytes: int = 0
    problem: str = ""
    """Why nothing is known, or what else is wrong."""
    repeated: bool = False
    inputs: list[tuple[str, "Node"]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.call.name if self.call else self.ref.kind

    def settings(self) -> dict[str, Any]:
        """The call's own inputs by dotted name, without references and without what is a section's default."""
        return dict(_settings(self.call.arguments)) if self.call else {}

    def walk(self) -> Iterator["Node"]:
        """This node and those below, each artifact once."""
        if not self.repeated:
            yield self
        for _, node in self.inputs:
            yield from node.walk()

    def to_row(self) -> dict[str, Any]:
        """Plain data, nested as the tree is."""
        row: dict[str, Any] = {"ref": self.ref.to_row(), "name": self.name}
        if self.repeated:
            return row | {"repeated": True}
        call = self.call
        row |= {
            "stage": call.stage if call else None, "version": call.version if call else None,
            "key": call.key if call else None, "created": call.created if call else None, "bytes": self.bytes,
            "settings": self.settings(),
            "arguments": {k: v for k, v in call.arguments.items() if not _has_ref(v)} if call else {},
            "external": call.external if call else None, "facts": self.facts,
            "environment": call.environment if call else {},
            "inputs": [{"argument": name} | node.to_row() for name, node in self.inputs],
        }  # fmt: skip
        return row | ({"problem": self.problem} if self.problem else {})


def tree(ref: ArtifactRef, known: Known) -> Node:
    """`ref` and what it was made from. An artifact that is gone is a leaf with a `problem`."""
    return _node(ref, known, set())


def _node(ref: ArtifactRef, known: Known, seen: set[tuple[str, str]]) -> Node:
    call = known.call(ref)
    node = Node(ref, call, repeated=ident(ref) in seen)
    if node.repeated:
        return node
    seen.add(ident(ref))
    made = known.manifest(ref)
    if made is None:
        node.problem = "is no longer in the store"
    else:
        node.facts = {name: value for name, value in made.metadata.items() if name not in OWN}
        node.bytes = made.size
    if call is not None:
        node.inputs = [(name, _node(inner, known, seen)) for name, inner in refs_of(call.arguments)]
    elif made is not None:
        node.problem = "no stage made it"
    return node


def _has_ref(value: Any) -> bool:
    return any(True for _ in refs_of(value))


def _settings(arguments: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    defaults = _defaults().get(frozenset(arguments), {}) if path else {}
    for name, value in arguments.items():
        here = f"{path}.{name}" if path else name
        if is_ref(value) or (name in defaults and defaults[name] == value) or value is None:
            continue
        if isinstance(value, dict):
            yield from _settings(value, here)
        elif not _has_ref(value):
            yield here, value


@cache
def _defaults() -> dict[frozenset[str], dict[str, Any]]:
    """The defaults of every kind of section, by the set of its keys."""
    import reasoner.config.multiturn
    import reasoner.config.planner
    import reasoner.config.smart  # noqa: F401  (defining the sections makes them known)

    found: dict[frozenset[str], dict[str, Any]] = {}
    for section in _subclasses(Section):
        found[frozenset(section.model_fields)] = {
            name: _plain(f.get_default(call_default_factory=True))
            for name, f in section.model_fields.items()
            if not f.is_required()
        }
    return found


def _subclasses(section: type[Section]) -> Iterator[type[Section]]:
    for one in section.__subclasses__():
        yield one
        yield from _subclasses(one)


def _plain(value: Any) -> Any:
    """As it stands in encoded arguments."""
    from pydantic_core import to_jsonable_python

    return None if value is PydanticUndefined else to_jsonable_python(value)
