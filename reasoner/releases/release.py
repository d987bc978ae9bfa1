"""A release: a name for a model as it was measured, with all that is needed to measure it again."""

import re
from dataclasses import dataclass
from typing import Any

from reasoner.errors import UsageError
from reasoner.records import ArtifactRef, Record

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
"""A release's name is also part of a Prefect artifact's key, which allows no more than this."""
LONGEST = 60


def check_name(name: str) -> str:
    """`name`, or a UsageError that says how a release may be called."""
    if len(name) > LONGEST or not NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} can't name a release: use small letters, digits and single dashes, at most {LONGEST} characters"
        )
    return name


@dataclass(frozen=True, slots=True)
class ReleasedSet(Record):
    """One evaluation set as it was measured, and the stage calls that measure it again.

    Arguments are those of the stages named, as plain data, whatever has become of the run and its configuration.
    """

    name: str
    evaluation: ArtifactRef
    """The table that the run's report shows."""
    outcomes: ArtifactRef
    """The artifact that holds a verdict a problem; see `outcomes`."""
    stage: str
    """The stage that asks the model."""
    arguments: dict[str, Any]
    judge: dict[str, Any] | None = None
    """Settings of the verdicts where a stage of its own makes them."""

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "ReleasedSet":
        refs = {name: ArtifactRef.from_row(row[name]) for name in ("evaluation", "outcomes")}
        return cls(row["name"], **refs, stage=row["stage"], arguments=row["arguments"], judge=row["judge"])


@dataclass(frozen=True, slots=True)
class Release(Record):
    """What a name stands for."""

    name: str
    method: str
    model: ArtifactRef
    base: str
    """The base model's name: a Hub id, a path or a package's file."""
    base_digest: str
    base_revision: str | None
    """The base's Hub commit, where it came from there."""
    run: str
    """The run's folder name."""
    date: str
    """When it was released, UTC, ISO 8601."""
    sets: tuple[ReleasedSet, ...]
    hub_repo: str | None = None
    hub_revision: str | None = None
    """The commit on the Hub, where the model was published."""

    @property
    def refs(self) -> tuple[ArtifactRef, ...]:
        """Artifacts that must be kept while the release stands."""
        measured = tuple(ref for each in self.sets for ref in (each.evaluation, each.outcomes))
        return (self.model, *measured, *(ref for each in self.sets for ref in refs_in(each.arguments)))

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Release":
        names = cls.__dataclass_fields__
        fields = {name: value for name, value in row.items() if name in names}
        fields["model"] = ArtifactRef.from_row(row["model"])
        fields["sets"] = tuple(ReleasedSet.from_row(each) for each in row["sets"])
        return cls(**fields)


def refs_in(value: Any) -> list[ArtifactRef]:
    """All references in plain data."""
    if isinstance(value, dict) and set(value) == {"kind", "digest", "uri"}:
        return [ArtifactRef.from_row(value)]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [ref for item in inner for ref in refs_in(item)]
