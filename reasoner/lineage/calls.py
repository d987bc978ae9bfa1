"""One call of a stage: its inputs, in a form that can be kept and compared, and what came of it.

A manifest keeps the call that made its artifact first. Another call may have come to the same content from other
inputs; a run's own journal (`journal`) keeps that one.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reasoner.ids import canonical
from reasoner.records import ArtifactRef
from reasoner.store import Manifest

LONGEST = 120
"""Characters of a text that is kept whole; of a longer one its beginning and its hash."""
MANY = 64
"""Entries of a list that are kept one by one; a longer list by its hash."""


@dataclass(frozen=True)
class Call:
    """A stage with its inputs. `ref` is None where it has not been made."""

    stage: str
    label: str
    version: int
    key: str
    arguments: dict[str, Any]
    """As the stage encodes them; a reference is a mapping of kind, digest and uri."""
    external: dict[str, Any] | None = None
    """What the key holds of the world outside, by what people call it; None where an older artifact does not say."""
    ref: ArtifactRef | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    created: str = ""

    @property
    def name(self) -> str:
        """Stage and label without saying one of them twice."""
        return self.label if self.label.startswith(self.stage) else f"{self.stage} {self.label}".strip()

    def refs(self) -> list[ArtifactRef]:
        """Every artifact among the inputs, in their order."""
        return [ref for _, ref in refs_of(self.arguments)]


def ident(ref: ArtifactRef) -> tuple[str, str]:
    """Kind and digest: two artifacts of different kinds may have equal content, and then equal digests."""
    return ref.kind, ref.digest


def call_of(ref: ArtifactRef, manifest: Manifest) -> Call | None:
    """The call that a manifest tells of; None for an artifact that no stage made."""
    facts = manifest.metadata
    if "stage" not in facts:
        return None
    return Call(
        str(facts["stage"]),
        str(facts.get("label", "")),
        int(facts.get("version", 0)),
        str(facts.get("key", "")),
        dict(facts.get("arguments", {})),
        facts.get("external"),
        ref,
        dict(facts.get("environment", {})),
        manifest.created,
    )


def is_ref(value: Any) -> bool:
    """Whether encoded data is an artifact reference."""
    return isinstance(value, dict) and set(value) == {"kind", "digest", "uri"}


def refs_of(value: Any, path: str = "") -> Iterator[tuple[str, ArtifactRef]]:
    """Every reference in encoded arguments with its dotted place, such as `answered[0].turn1`."""
    if is_ref(value):
        yield path, ArtifactRef.from_row(value)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from refs_of(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from refs_of(inner, f"{path}[{number}]")


def outline(value: Any) -> Any:
    """Canonical data of `value` that is small and still differs where `value` differs.

    Long texts keep their beginning and a hash, long lists their length and a hash. Raises TypeError as `canonical`.
    """
    return _outline(canonical(value))


def _outline(value: Any) -> Any:
    if isinstance(value, str) and len(value) > LONGEST:
        return f"{value[:40]}… ({len(value)} characters, sha256 {_sha(value)})"
    if isinstance(value, dict):
        return {name: _outline(inner) for name, inner in value.items()}
    if isinstance(value, list):
        if len(value) > MANY:
            return f"{len(value)} entries, sha256 {_sha(repr(value))}"
        return [_outline(inner) for inner in value]
    return value


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
