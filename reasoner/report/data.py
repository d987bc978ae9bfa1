"""What a report is made of: plain data, read by `RunReport.model_validate`, written by `model_dump`.

Figures are measured elsewhere; nothing is computed here but words.
"""

from typing import Any, Literal

from pydantic import Field

from reasoner.config.base import Section
from reasoner.methods.smart.analysis import Analysis
from reasoner.methods.smart.correction import SelfCorrection
from reasoner.methods.smart.evaluation import Comparison, Evaluation
from reasoner.methods.smart.regret import Regret
from reasoner.statistics import Estimate


class Row(Section):
    """One line of a headline table."""

    label: str
    kind: Literal["few_shot", "random", "vote", "oracle", "policy", "variant", "control"]
    """`random`, `vote` and `oracle` are made of the few-shot attempts; a `variant` is another training of SMART."""
    accuracy: Estimate
    evaluation: Evaluation | None = None
    """Unset for the vote and the oracle, which are no model."""
    best: Comparison | None = None
    """Against the best single few-shot strategy."""
    previous: Comparison | None = None
    """Against the epoch before; of a variant, against the last epoch. A control's test stands with the other side."""
    controls: tuple[Comparison, ...] = ()
    """Of the last epoch and of each variant: against each control."""
    regret: Regret | None = None
    """The choice of strategy, judged by the base's few-shot attempts."""
    correction: SelfCorrection | None = None
    """Two turns, where a second one was evaluated."""
    turn2: Evaluation | None = None
    """The second turn by itself."""
    forced: Analysis | None = None
    """The policy's answers with each strategy forced: its own oracle, its vote, its best single strategy."""
    own_regret: Regret | None = None
    """The choice of strategy, judged by those."""


class HeadlineTable(Section):
    """Every model on one evaluation set."""

    name: str
    confidence: float = 0.95
    best_single: str | None = None
    """Label of the best single few-shot strategy, if few-shot attempts exist."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()


class RecordSet(Section):
    """The training records of one epoch and what became of everything else."""

    label: str
    counts: dict[str, int] = Field(default_factory=dict)
    """As the methods count them; `records`, `direct` and `refine` go into the table, the rest below it."""
    by_strategy: dict[str, int] = Field(default_factory=dict)


class Loss(Section):
    """One training run. Losses are means over completion tokens, in nats."""

    label: str
    records: int | None = None
    steps: int | None = None
    train: float | None = None
    validation: float | None = None
    note: str = ""


class Curve(Section):
    """How a training by reward went."""

    label: str
    points: tuple[dict[str, float], ...]
    """Means over windows of steps, each under its last step: `step`, `reward`, shares of strategies, and the like."""


class StageTime(Section):
    """One stage of the run."""

    name: str
    seconds: float
    """Wall-clock seconds that it took in this run."""
    state: str = "computed"
    """`computed`, or `cached` where an earlier run's result was used."""
    detail: str = ""


class RunReport(Section):
    """Everything that a run's report says, in the order of the page."""

    title: str
    facts: dict[str, str] = Field(default_factory=dict)
    """Name and value: model, revision, data, seed, device and the like."""
    tables: tuple[HeadlineTable, ...] = ()
    few_shot: Analysis | None = None
    """The few-shot attempts on the training questions."""
    records: tuple[RecordSet, ...] = ()
    losses: tuple[Loss, ...] = ()
    curves: tuple[Curve, ...] = ()
    stages: tuple[StageTime, ...] = ()
    contamination: dict[str, Any] | None = None
    """Evaluation questions in the training pool: counts, matches, scores without them; unset where it was off."""
    left_out: tuple[str, ...] = ()
    """What was not used or not measured, one sentence each."""

    def to_json(self) -> dict[str, Any]:
        """Plain data; a run without a training by reward is written as before there was one."""
        return self.model_dump(mode="json", exclude=None if self.curves else {"curves"})
