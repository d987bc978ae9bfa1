"""The four prompts of the planner and its worker: data, filled in and rendered with the model's chat template.

The same text is used in training, evaluation and inference. What a forced planner must begin with stands here, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.errors import ConfigurationError
from reasoner.ids import content_hash
from reasoner.prompts.compiled import fill_in
from reasoner.prompts.files import read_data
from reasoner.prompts.policy import Message

NAMES = ("planner", "solve_subproblem", "combine", "solve_directly")
FORCED = '{"should_decompose": true, "subproblems": ["'
"""What a planner's answer begins with where decomposition is forced."""


@dataclass(frozen=True, slots=True)
class PlannerPrompts:
    """Four Jinja templates of one user turn each; see prompts/planner/planner.yaml for their variables."""

    name: str
    planner: str
    solve_subproblem: str
    combine: str
    solve_directly: str

    @property
    def content_id(self) -> list[str]:
        """What a stage's key takes of them; the name does not count."""
        return ["planner-prompts", self.content_hash]

    @property
    def content_hash(self) -> str:
        return content_hash([getattr(self, name) for name in NAMES] + [FORCED], 16)

    def plan(self, question: str) -> list[Message]:
        """The planner's conversation."""
        return self._turn("planner", question=question.strip())

    def subproblem(self, question: str, subproblem: str) -> list[Message]:
        """The worker is shown one sub-problem, and no other solution."""
        return self._turn("solve_subproblem", question=question.strip(), subproblem=subproblem.strip())

    def combination(
        self, question: str, subproblems: Sequence[str], solutions: Sequence[str]
    ) -> list[Message]:
        """The worker is shown every sub-problem with its solution."""
        pairs = zip(subproblems, solutions, strict=True)
        parts = [{"subproblem": p.strip(), "solution": s.strip()} for p, s in pairs]
        return self._turn("combine", question=question.strip(), parts=parts)

    def direct(self, question: str) -> list[Message]:
        """The worker is shown the problem alone."""
        return self._turn("solve_directly", question=question.strip())

    def _turn(self, template: str, **values: Any) -> list[Message]:
        return [{"role": "user", "content": _render(self.name, template, getattr(self, template), values)}]


def load_prompts(name: str = "planner") -> PlannerPrompts:
    """The prompts `name` of prompts/planner/, or the YAML file at that path, tried on an example.

    Raises ConfigurationError where one is missing, malformed, or does not show what it must.
    """
    data = read_data("planner", name)
    if (
        not isinstance(data, dict)
        or set(data) != set(NAMES)
        or not all(isinstance(v, str) for v in data.values())
    ):
        raise ConfigurationError(f"planner prompts {name}: must hold exactly the keys {', '.join(NAMES)}")
    prompts = PlannerPrompts(name, **data)
    shown = {
        "planner": (prompts.plan("q1"), ["q1"]),
        "solve_subproblem": (prompts.subproblem("q1", "p1"), ["q1", "p1"]),
        "combine": (prompts.combination("q1", ["p1", "p2"], ["s1", "s2"]), ["q1", "p1", "p2", "s1", "s2"]),
        "solve_directly": (prompts.direct("q1"), ["q1"]),
    }
    for template, (messages, needed) in shown.items():
        if missing := [word for word in needed if word not in messages[0]["content"]]:
            raise ConfigurationError(f"planner prompts {name}: `{template}` does not show {missing[0]!r}")
    return prompts


def _render(name: str, template: str, text: str, values: dict[str, Any]) -> str:
    from jinja2 import TemplateError

    try:
        return fill_in(text, values)
    except TemplateError as error:
        raise ConfigurationError(f"planner prompts {name}: `{template}`: {error}") from None
