"""What the templates are filled with. Plain data: words and figures, and nothing that is computed in a template."""

from dataclasses import dataclass, field
from typing import Any

from reasoner.report.data import HeadlineTable, RecordSet
from reasoner.report.html.charts import Chart
from reasoner.statistics import Estimate


@dataclass(frozen=True, slots=True)
class Measured:
    """One source of trajectories: how many there are and how many are right."""

    label: str
    split: str
    made: int
    unscored: int
    accuracy: Estimate


@dataclass(frozen=True, slots=True)
class Facts:
    """A named list of facts."""

    title: str
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """An artifact in the table of the lineage."""

    number: int
    label: str
    kind: str
    digest: str
    created: str
    seconds: float | None
    tokens: int | None
    size: int
    made_from: tuple[int, ...]


@dataclass
class Page:
    """The whole page but for the trajectories."""

    title: str
    run: str
    method: str
    finished: bool
    facts: list[Facts] = field(default_factory=list)
    tables: list[HeadlineTable] = field(default_factory=list)
    """SMART's headline tables."""
    few_shot: Any = None
    """SMART's `Analysis` of the few-shot attempts at the pool."""
    records: list[RecordSet] = field(default_factory=list)
    planner: list[Any] = field(default_factory=list)
    """`PlannerEvaluation`s."""
    arm_seconds: dict[str, dict[str, float]] = field(default_factory=dict)
    """Planner: by evaluation set what each arm took, where that is known."""
    turns: Any = None
    """Multi-turn: `multiturn.Turns`."""
    charts: list[Chart] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    config: str = ""
    notes: list[str] = field(default_factory=list)
    """What is not there and why."""
