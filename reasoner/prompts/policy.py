"""The policy's user turn and its completion (METHODS 2.2).

The turn is built from a record of what was tried, never by replacing words in a text: a question may
contain "None".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from reasoner.errors import ConfigurationError, UsageError
from reasoner.ids import content_hash
from reasoner.prompts.compiled import fill_in
from reasoner.prompts.files import read_data
from reasoner.records import Strategy

Message = dict[str, str]
"""`role` and `content`."""

COMPLETION = "{title}: {solution}"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A strategy that was tried without success; `solution` is needed only for `refine_context: full`."""

    strategy: Strategy
    solution: str = ""


@dataclass(frozen=True, slots=True)
class PolicyTemplate:
    """The text of the user turn, a Jinja template (see templates/smart.yaml for its variables)."""

    name: str
    user: str

    @property
    def content_hash(self) -> str:
        """Changes with the text of the turn and with the form of a completion; the name does not count."""
        return content_hash([self.user, COMPLETION, [s.title for s in Strategy]], 16)

    @property
    def content_id(self) -> list[str]:
        """What a stage's key takes of it."""
        return ["template", self.content_hash]

    def user_turn(
        self,
        question: str,
        tried: Sequence[Attempt] = (),
        refine_context: Literal["name", "full"] = "name",
        strategies: Sequence[Strategy] = tuple(Strategy),
    ) -> str:
        """The text of the user's message.

        With `refine_context` "name" the turn names the strategies that failed, with "full" it also shows
        their solutions. Raises UsageError for "full" without a solution, ConfigurationError for a faulty
        template.
        """
        full = refine_context == "full"
        if full and not all(attempt.solution.strip() for attempt in tried):
            raise UsageError("refine_context=full needs the failed solution of every strategy that was tried")
        values = {
            "question": question.strip(),
            "strategies": [strategy.title for strategy in strategies],
            "tried": [{"title": a.strategy.title, "solution": a.solution.strip()} for a in tried],
            "full": full,
        }
        return _render(self, values)

    def messages(
        self,
        question: str,
        tried: Sequence[Attempt] = (),
        refine_context: Literal["name", "full"] = "name",
        strategies: Sequence[Strategy] = tuple(Strategy),
    ) -> list[Message]:
        """The conversation that a chat renderer takes: one user turn."""
        return [{"role": "user", "content": self.user_turn(question, tried, refine_context, strategies)}]


def load_template(name: str) -> PolicyTemplate:
    """The template `name` of templates/, or the YAML file at that path, checked on an example.

    Raises ConfigurationError where it is missing, malformed, or does not show the question.
    """
    data = read_data("templates", name)
    if not isinstance(data, dict) or set(data) != {"user"} or not isinstance(data["user"], str):
        raise ConfigurationError(f"template {name}: must hold one key, `user`, with the text of the turn")
    template = PolicyTemplate(name, data["user"])
    if "a question" not in template.user_turn("a question", [Attempt(Strategy.COT, "x")], "full"):
        raise ConfigurationError(f"template {name}: `user` does not contain {{{{ question }}}}")
    return template


def completion(strategy: Strategy, solution: str) -> str:
    """What the policy answers: the strategy's name, a colon, the solution; without an end token."""
    return COMPLETION.format(title=strategy.title, solution=solution.strip())


def _render(template: PolicyTemplate, values: dict[str, object]) -> str:
    from jinja2 import TemplateError

    try:
        return fill_in(template.user, values)
    except TemplateError as error:
        raise ConfigurationError(f"template {template.name}: {error}") from None
