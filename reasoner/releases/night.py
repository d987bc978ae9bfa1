"""One night of one release: every set measured again and compared with the release's own evaluation."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.errors import DataError
from reasoner.records import Record
from reasoner.statistics import Estimate
from reasoner.statistics.worse import Change, Outcomes, changes

FILE = "night.json"
ALPHA = 0.01


@dataclass(frozen=True, slots=True)
class Night(Record):
    """What a night found. `notes` say what has changed around the model since its release."""

    release: str
    night: str
    model: str
    """Digest of the released model."""
    alpha: float
    sets: dict[str, Change]
    notes: tuple[str, ...] = ()

    @property
    def worse(self) -> tuple[str, ...]:
        """The sets on which the model has become significantly worse."""
        return tuple(name for name, change in self.sets.items() if change.worse)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Night":
        return cls(
            row["release"], row["night"], row["model"], row["alpha"],
            {name: _change(each) for name, each in row["sets"].items()}, tuple(row["notes"]),
        )  # fmt: skip


def judge(
    release: str, night: str, model: str, sets: Mapping[str, tuple[Outcomes, Outcomes]], alpha: float,
    notes: tuple[str, ...] = (),
) -> Night:  # fmt: skip
    """Compare (release, night) of every set; the chance that an unchanged model is called worse is at most alpha."""
    if not sets:
        raise DataError(f"release {release!r} has no evaluation sets, so there is nothing to compare")
    return Night(release, night, model, alpha, changes(sets, alpha), notes)


def changed(before: dict[str, Any], now: dict[str, Any]) -> tuple[str, ...]:
    """What differs between two environments: packages, Python, machine; one sentence each."""
    found = []
    old, new = before.get("packages", {}), now.get("packages", {})
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            found.append(f"{name} {old.get(name, 'absent')} then, {new.get(name, 'absent')} now")
    for name in ("python", "machine"):
        if before.get(name) != now.get(name):
            found.append(f"{name} {before.get(name)} then, {now.get(name)} now")
    return tuple(found)


def write_night(out: Path, night: Night) -> None:
    """`night.json`."""
    text = json.dumps(night.to_row(), sort_keys=True, indent=1, ensure_ascii=False)
    (out / FILE).write_text(text + "\n", encoding="utf-8")


def read_night(folder: Path) -> Night:
    """What `write_night` left."""
    return Night.from_row(json.loads((folder / FILE).read_text(encoding="utf-8")))


def _change(row: dict[str, Any]) -> Change:
    estimates = {name: Estimate.from_row(row[name]) for name in ("before", "now")}
    return Change.from_row({**row, **estimates})
