"""A plan: every stage with its state and its estimate; sums, cost, what does not fit; later what it really took."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from reasoner.errors import DataError
from reasoner.planning.estimate import Estimate
from reasoner.records import Record
from reasoner.store.durable import replace_file

FILE = "plan.json"
"""In a run's folder."""
TIMINGS = "timings.jsonl"
"""In a run's folder: a line a stage that was computed, with its seconds."""
CACHED, STALE, TO_RUN = "cached", "stale", "to run"


@dataclass(frozen=True, slots=True)
class Step(Record):
    """One stage of a plan."""

    stage: str
    label: str
    key: str
    state: str
    """`cached`; `stale`: made before from other inputs; `to run`: never made here."""
    reason: str = ""
    estimate: Estimate = field(default_factory=Estimate)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Step":
        return cls(**{**row, "estimate": Estimate(**_tuples(row["estimate"]))})


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "notes": tuple(row.get("notes", ()))}


@dataclass(frozen=True)
class Plan:
    """All stages of a run in the order in which they come."""

    name: str
    device: str
    basis: str
    """What the estimates stand on."""
    overhead: float
    """Seconds of the orchestrator: its start, and a task a stage."""
    steps: tuple[Step, ...]
    refusals: tuple[str, ...] = ()
    """Why it cannot run as it is, each a line with what would help."""
    actual: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By stage key, once it has run: `seconds`, and where the stage counted them `new_tokens` and `host_bytes`."""
    actual_seconds: float | None = None
    """Wall-clock seconds of the whole run, where they are known."""

    @property
    def owed(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.state != CACHED)

    @property
    def seconds(self) -> float:
        """Of everything that is not cached, and of the orchestrator."""
        return self.overhead + sum(step.estimate.seconds for step in self.owed)

    def total(self, name: str) -> int:
        """A sum over what is owed, such as of `new_tokens` or `disk_bytes`."""
        return int(sum(getattr(step.estimate, name) for step in self.owed))

    def peak(self, name: str) -> int:
        """A maximum over what is owed, such as of `device_bytes`."""
        return max((int(getattr(step.estimate, name)) for step in self.owed), default=0)

    def cost(self, price: float) -> float:
        """At a price an hour, the machine held from beginning to end."""
        return self.seconds / 3600 * price

    def to_row(self, price: float | None = None) -> dict[str, Any]:
        """As JSON data, with the sums."""
        row = {**asdict(self), "seconds": round(self.seconds, 1), "states": self.states}
        sums = ("prompt_tokens", "new_tokens", "trained_tokens", "disk_bytes")
        row |= {name: self.total(name) for name in sums}
        row |= {name: self.peak(name) for name in ("device_bytes", "host_bytes")}
        return row if price is None else {**row, "price_per_hour": price, "cost": round(self.cost(price), 2)}

    @property
    def states(self) -> dict[str, int]:
        """How many stages are in each state."""
        return {state: sum(s.state == state for s in self.steps) for state in (CACHED, STALE, TO_RUN)}

    def write(self, folder: Path) -> None:
        """Keep it in a run's folder."""
        text = json.dumps(self.to_row(), indent=1, sort_keys=True, ensure_ascii=False) + "\n"
        replace_file(folder / FILE, [text.encode()])


def read(folder: Path) -> Plan:
    """The plan of a run. DataError where the run has none."""
    path = folder / FILE
    try:
        row = json.loads(path.read_text(encoding="utf-8"))
        steps = tuple(Step.from_row(step) for step in row["steps"])
        return Plan(row["name"], row["device"], row["basis"], row["overhead"], steps, tuple(row["refusals"]),
                    row["actual"], row["actual_seconds"])  # fmt: skip
    except FileNotFoundError:
        raise DataError(f"run {folder.name} has no {FILE}: it has not ended (the same command goes on), or was started "
                        "before plans were kept") from None  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no plan ({error})") from None


def timings(folder: Path) -> dict[str, dict[str, float]]:
    """What a run's stages took, by key; a stage that was run twice counts twice."""
    found: dict[str, dict[str, float]] = {}
    for row in _timed(folder):
        before = found.get(row["key"], {}).get("seconds", 0.0)
        numbers: dict[str, float] = {
            n: float(row[n]) for n in ("new_tokens", "host_bytes", "device_bytes") if n in row
        }
        found[row["key"]] = {**numbers, "seconds": before + float(row["seconds"])}
    return found


def _timed(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of a run's diary; a line that a crash cut is skipped."""
    path = folder / TIMINGS
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            row = json.loads(line)
            yield {
                **row,
                "key": str(row["key"]),
                "label": str(row.get("label", "")),
                "seconds": float(row["seconds"]),
            }
        except (ValueError, KeyError, TypeError):
            continue


def with_keys_of_run(steps: Sequence[Step], folder: Path) -> tuple[Step, ...]:
    """The steps under the keys that they had when the run in `folder` made them.

    The key of a stage whose inputs were not made yet cannot be known before: such a step is found by its label. Where
    more or fewer stages of a label were made than planned, nobody can say which is which, and they keep their keys.
    """
    planned = {step.key for step in steps}
    made: dict[str, list[str]] = {}
    for row in _timed(folder):
        if row["key"] not in planned and row["key"] not in made.setdefault(row["label"], []):
            made[row["label"]].append(row["key"])
    timed = timings(folder)
    wanted: dict[str, list[str]] = {}
    for step in steps:
        if step.state != CACHED and step.key not in timed:
            wanted.setdefault(step.label, []).append(step.key)
    keys = {
        before: after
        for label, befores in wanted.items()
        if len(befores) == len(made.get(label, []))
        for before, after in zip(befores, made[label], strict=True)
    }
    return tuple(replace(step, key=keys.get(step.key, step.key)) for step in steps)


def error_of(predicted: float, actual: float) -> float:
    """How far off, as a share of what it took: +0.25 is predicted a quarter too long."""
    return (predicted - actual) / actual if actual else 0.0


def compared(plan: Plan) -> Sequence[tuple[Step, float]]:
    """The stages that were planned and computed, with the seconds that they took."""
    return [(step, plan.actual[step.key]["seconds"]) for step in plan.steps if step.key in plan.actual]
