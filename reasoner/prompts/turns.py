"""The prompts of a multi-turn episode: P1 attempt, P2 feedback, P3 refinement, and SCoRe's fixed correction.

Each is the user's turn of a conversation of its own, rendered with the model's chat template by `ChatRenderer`.
"""

from dataclasses import dataclass
from typing import Any

from reasoner.errors import ConfigurationError
from reasoner.ids import content_hash
from reasoner.prompts.compiled import fill_in
from reasoner.prompts.files import read_data
from reasoner.prompts.policy import Message

PARTS = ("attempt", "feedback", "refine", "correction")
_UNTOLD: dict[str, Any] = {"error": "", "passes": False}


@dataclass(frozen=True, slots=True)
class TurnTemplates:
    """The texts of all turns. The variables are those of the YAML files under multiturn/."""

    name: str
    attempt: str
    feedback: str
    refine: str
    correction: str

    @property
    def content_id(self) -> list[str]:
        """What a stage's key takes of them; the name does not count."""
        return ["turns", content_hash([self.attempt, self.feedback, self.refine, self.correction], 16)]

    def attempt_turn(self, facts: dict[str, Any]) -> list[Message]:
        """P1. `facts` holds what the environment tells of the problem: question, function, tests."""
        return self._turn(self.attempt, {**facts, **_UNTOLD, "attempt": "", "feedback": ""})

    def feedback_turn(self, facts: dict[str, Any], attempt: str, error: str | None = None) -> list[Message]:
        """P2: sees the problem and the attempt. Of its tests it sees nothing (None), that those which are shown pass
        (empty), or how it failed."""
        told = _UNTOLD if error is None else {"error": error.strip(), "passes": not error.strip()}
        return self._turn(self.feedback, {**facts, **told, "attempt": attempt.strip(), "feedback": ""})

    def refine_turn(self, facts: dict[str, Any], attempt: str, feedback: str) -> list[Message]:
        """P3; an empty feedback leaves its paragraph out."""
        values = {**facts, "attempt": attempt.strip(), "feedback": feedback.strip(), **_UNTOLD}
        return self._turn(self.refine, values)

    def _turn(self, template: str, values: dict[str, Any]) -> list[Message]:
        from jinja2 import TemplateError

        try:
            text = fill_in(template, values)
        except TemplateError as error:
            raise ConfigurationError(f"prompts {self.name}: {error}") from None
        return [{"role": "user", "content": text}]


def load_turns(name: str) -> TurnTemplates:
    """The templates `name` of multiturn/, or the YAML file at that path, tried on an example.

    Raises ConfigurationError where it is missing or malformed, or the refinement does not show the feedback.
    """
    data = read_data("multiturn", name)
    if not isinstance(data, dict) or set(data) != set(PARTS):
        raise ConfigurationError(f"prompts {name}: must hold the keys {', '.join(PARTS)} and no others")
    if not all(isinstance(text, str) for text in data.values()):
        raise ConfigurationError(f"prompts {name}: every key holds a text")
    turns = TurnTemplates(name, **data)
    facts = {"question": "a question", "function": "f", "tests": ["assert f()"]}
    turns.attempt_turn(facts)
    for error in (None, "", "an error"):
        turns.feedback_turn(facts, "an attempt", error)
    if "a hint" not in turns.refine_turn(facts, "an attempt", "a hint")[0]["content"]:
        raise ConfigurationError(f"prompts {name}: `refine` does not contain {{{{ feedback }}}}")
    return turns
