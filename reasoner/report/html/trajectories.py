"""Trajectories as the page holds them: light columns for filtering, and bodies that are read when they are shown."""

from dataclasses import dataclass, field
from typing import Any

from reasoner.records import Problem

SLOT = None
"""Stands in a prompt's parts where the question goes."""


@dataclass(slots=True)
class Trajectory:
    """One row of the list. `body` is what the trace shows beside it; see trace.js for its forms."""

    problem: int
    """Index into `Collection.problems`."""
    arm: str
    """Who answered: a model, an arm, a control."""
    split: str
    strategy: str
    """SMART: the strategy; planner: whether the problem was decomposed; multi-turn: what became of the answer."""
    outcome: str
    reason: str
    extracted: str
    tokens: int
    finish: str
    index: int
    """Number of the sample, or of the training step."""
    body: dict[str, Any]


@dataclass(slots=True)
class Prompt:
    """A prompt with the question taken out: `parts` are joined by the question."""

    parts: tuple[str, ...]
    exact: bool
    """Whether it is what the model saw, checked by the hash that was kept with the completion."""
    note: str = ""


@dataclass(slots=True)
class Flip:
    """How the answers to one set's problems changed from model to model."""

    name: str
    stages: tuple[str, ...]
    rows: list[list[int]]
    """Problem index, then a trajectory id a stage; -1 where there is none. Problems that change."""
    patterns: dict[str, int]
    """Problems by pattern, such as `011` (0 wrong, 1 right, `-` unscored or missing), those that do not change, too."""


@dataclass
class Collection:
    """Everything that the page's script works on."""

    problems: list[Problem] = field(default_factory=list)
    rows: list[Trajectory] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    flips: list[Flip] = field(default_factory=list)
    _known: dict[str, int] = field(default_factory=dict)

    def problem(self, problem: Problem) -> int:
        """The index of a problem, which is added where it is new."""
        if problem.id not in self._known:
            self._known[problem.id] = len(self.problems)
            self.problems.append(problem)
        return self._known[problem.id]

    def by_id(self, problem_id: str, question: str = "", gold: str = "") -> int:
        """The index of a problem by its id; one that is in no problem file is known by what the row says."""
        if problem_id in self._known:
            return self._known[problem_id]
        return self.problem(Problem(problem_id, question, gold, "", ""))

    def add_flips(self, name: str, stages: dict[str, dict[int, int]]) -> None:
        """Compare the trajectories of several models: `stages` maps a label to {problem: trajectory}."""
        if len(stages) < 2:
            return
        patterns: dict[str, int] = {}
        rows = []
        for problem in dict.fromkeys(p for found in stages.values() for p in found):
            ids = [found.get(problem, -1) for found in stages.values()]
            pattern = "".join(_mark(self.rows[i].outcome) if i >= 0 else "-" for i in ids)
            patterns[pattern] = patterns.get(pattern, 0) + 1
            if len(set(pattern.replace("-", ""))) > 1:
                rows.append([problem, *ids])
        self.flips.append(Flip(name, tuple(stages), rows, patterns))


def _mark(outcome: str) -> str:
    return {"correct": "1", "incorrect": "0"}.get(outcome, "-")
