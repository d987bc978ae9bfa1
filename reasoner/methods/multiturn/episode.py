"""An episode: attempt z, feedback g, refinement ŷ of one problem, with the exact token ids that were seen and drawn.

Training uses these ids and the sampler's log-probabilities; nothing is tokenised or generated again. All turns of an
episode concern one problem, which is checked when it is made.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from reasoner.errors import DataError
from reasoner.records import Record, Verdict


class Kind(StrEnum):
    """What a turn is."""

    ATTEMPT = "attempt"
    """z ~ π_L(·|x), or y1 of SCoRe."""
    FEEDBACK = "feedback"
    """g ~ π_H(·|x, z)."""
    REFINEMENT = "refinement"
    """ŷ ~ π_L(·|x, z, g), or y2 of SCoRe."""

    @property
    def policy(self) -> str:
        """The adapter that writes it."""
        return FEEDBACK if self is Kind.FEEDBACK else SOLVER


SOLVER, FEEDBACK = "solver", "feedback"
"""The two adapters of one base."""
MAX_NOTE = 200
"""Longest note of a verdict, in characters."""


@dataclass(frozen=True, slots=True)
class Judged(Record):
    """A verdict with what an environment knows beside it."""

    verdict: Verdict
    unshown: float | None = None
    """Code: share of the tests not shown to the solver that passed; None where all were shown."""
    signs: tuple[str, ...] | None = None
    """Code: signs of an attack on the judge; None where nothing looks for them."""
    note: str = ""
    """Code: what the first failed test said."""

    def __post_init__(self) -> None:
        # How long a verdict took is no part of an episode: equal episodes are equal bytes.
        object.__setattr__(self, "verdict", replace(self.verdict, seconds=0.0))

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Judged":
        signs = None if row["signs"] is None else tuple(row["signs"])
        return cls(Verdict.from_row(row["verdict"]), row["unshown"], signs, row["note"])


@dataclass(frozen=True, slots=True)
class Turn(Record):
    """One model-written turn. `token_ids` holds the end token where one was drawn; `logprobs` are the sampler's.

    An evaluation keeps neither ids nor log-probabilities; `tokens` counts the generated tokens in any case.
    """

    kind: Kind
    problem_id: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish: str
    tokens: int
    judged: Judged | None = None

    @property
    def cut(self) -> bool:
        """Whether it ended at the token limit."""
        return self.finish == "length"

    @property
    def reward(self) -> float | None:
        """1 or 0; None where the verdict is unscored or there is none."""
        if self.judged is None or self.judged.verdict.outcome == "unscored":
            return None
        return float(self.judged.verdict.correct)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Turn":
        judged = row["judged"]
        return cls(
            Kind(row["kind"]), row["problem_id"], tuple(row["prompt_ids"]), tuple(row["token_ids"]),
            tuple(row["logprobs"]), row["text"], row["finish"], row["tokens"],
            Judged.from_row(judged) if judged else None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Episode(Record):
    """One trajectory of a problem. `index` counts its group's members from 0.

    `advice` is what the refinement was told: the feedback's text, the fixed correction, or a control's text. A
    single-turn episode (ArCHer) has the attempt alone.
    """

    problem_id: str
    index: int
    attempt: Turn
    feedback: Turn | None = None
    refinement: Turn | None = None
    advice: str = ""
    leak: bool | None = None
    """Whether the feedback contains the gold answer; None without a feedback turn."""
    new_leak: bool | None = None
    """Whether it does so and neither the problem nor the attempt did."""
    tags: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for turn in self.turns:
            if turn.problem_id != self.problem_id:
                raise DataError(
                    f"an episode of problem {self.problem_id} holds a {turn.kind} of problem {turn.problem_id}"
                )

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Every model-written turn, in order."""
        return tuple(t for t in (self.attempt, self.feedback, self.refinement) if t is not None)

    @property
    def r1(self) -> float | None:
        """The attempt's reward."""
        return self.attempt.reward

    @property
    def r2(self) -> float | None:
        """The refinement's reward, R; None for a single turn."""
        return self.refinement.reward if self.refinement is not None else None

    @property
    def scored(self) -> bool:
        """Whether every solver turn has a verdict; others are masked and counted, never rewarded with 0."""
        return self.r1 is not None and (self.refinement is None or self.r2 is not None)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> "Episode":
        def turn(name: str) -> Turn | None:
            return Turn.from_row(row[name]) if row[name] else None

        return cls(
            row["problem_id"], row["index"], Turn.from_row(row["attempt"]), turn("feedback"), turn("refinement"),
            row["advice"], row["leak"], row["new_leak"], dict(row["tags"]),
        )  # fmt: skip


def groups(episodes: list[Episode]) -> list[list[int]]:
    """Indices of the episodes of each problem, in order of first appearance."""
    found: dict[str, list[int]] = {}
    for i, episode in enumerate(episodes):
        found.setdefault(episode.problem_id, []).append(i)
    return list(found.values())
