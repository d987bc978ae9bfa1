"""Few-shot prompts: worked examples and then the question, as plain text or as the turns of a conversation.

    Problem: …
    Solution: …

    Problem: …
    Solution:

The examples come first and are the same for every question, so that an engine's prefix cache holds them. A
generation should stop at an empty line or at the next "Problem:". The examples are data, see exemplars/; so are the
tasks, a sentence a strategy behind each question of a conversation: instruct models leave out what they were
only shown, such as the line that assigns `answer` (docs/smart.md).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError, model_validator

from reasoner.config.base import Section
from reasoner.errors import ConfigurationError
from reasoner.ids import content_hash
from reasoner.prompts.files import read_data
from reasoner.prompts.policy import Message
from reasoner.records import ADDED, Strategy

BLOCK = "Problem: {question}\nSolution:{solution}"
SEPARATOR = "\n\n"


class Exemplar(Section):
    """One question, its answer, and a solution a strategy."""

    question: str = Field(min_length=1)
    answer: str = Field(min_length=1)
    """The number, as text."""
    cot: str | None = None
    sub: str | None = None
    pot: str | None = None
    added: dict[Strategy, str] = Field(default_factory=dict)
    """Solutions in strategies of the user's own; in a file each stands under its strategy's word."""

    @model_validator(mode="before")
    @classmethod
    def _added_under_their_words(cls, values: Any) -> Any:
        words = {strategy.value for strategy in ADDED}
        if not isinstance(values, dict) or not words & values.keys():
            return values
        plain = {name: value for name, value in values.items() if name not in words}
        return {**plain, "added": {name: values[name] for name in words & values.keys()}}

    @property
    def content(self) -> dict[str, Any]:
        """What a hash takes of it; as before `added` existed where that is empty."""
        return self.model_dump(exclude=None if self.added else {"added"}, mode="json")

    def solution(self, strategy: Strategy) -> str | None:
        """The worked solution in one strategy, or None where the file has none."""
        own = {Strategy.COT: self.cot, Strategy.SUB: self.sub, Strategy.POT: self.pot}
        text = own[strategy] if strategy in own else self.added.get(strategy)
        return text.strip() if text else None


@dataclass(frozen=True, slots=True)
class ExemplarSet:
    """Worked examples under a name."""

    name: str
    exemplars: tuple[Exemplar, ...]
    tasks: Mapping[Strategy, str] = field(default_factory=dict)
    """What a conversation asks for behind each question."""

    @property
    def content_hash(self) -> str:
        """Changes with any example or task and with the layout of the prompt; the name does not count."""
        tasks = [dict(self.tasks)] if self.tasks else []
        return content_hash([BLOCK, SEPARATOR, [item.content for item in self.exemplars], *tasks], 16)

    @property
    def content_id(self) -> list[str]:
        """What a stage's key takes of it."""
        return ["exemplars", self.content_hash]


def load_exemplars(name: str) -> ExemplarSet:
    """The set `name` of exemplars/, or the YAML file at that path.

    Raises ConfigurationError where it is missing or malformed.
    """
    data = read_data("exemplars", name)
    tasks: Any = {}
    if isinstance(data, dict) and "exemplars" in data:  # a user's own file may have strategies beside them
        data, tasks = data["exemplars"], data.get("tasks", {})
    try:
        exemplars = TypeAdapter(tuple[Exemplar, ...]).validate_python(data)
        asked = TypeAdapter(dict[Strategy, str]).validate_python(tasks)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigurationError(f"exemplars {name}: {where}: {first['msg']}") from None
    return ExemplarSet(name, exemplars, asked)


def few_shot_prompt(exemplars: ExemplarSet, strategy: Strategy, question: str, shots: int) -> str:
    """The text whose continuation is a solution of `question`; the first `shots` examples are shown.

    The text ends without a space, which most tokenizers put in front of the next word themselves. Raises
    ConfigurationError where there are fewer examples, or one of them has no solution in `strategy`.
    """
    blocks = [
        BLOCK.format(question=block_text(exemplar.question), solution=f" {solution}")
        for exemplar, solution in _shown(exemplars, strategy, shots)
    ]
    blocks.append(BLOCK.format(question=block_text(question), solution=""))
    return SEPARATOR.join(blocks)


def few_shot_turns(exemplars: ExemplarSet, strategy: Strategy, question: str, shots: int) -> list[Message]:
    """The same as a conversation: each example a user's turn and the assistant's, then the question.

    Each question is followed by the strategy's task, where the file has one. Raises ConfigurationError as
    `few_shot_prompt` does.
    """
    task = exemplars.tasks.get(strategy, "")

    def asked(text: str) -> Message:
        return {"role": "user", "content": f"Problem: {block_text(text)}" + (f"\n{task}" if task else "")}

    turns: list[Message] = []
    for exemplar, solution in _shown(exemplars, strategy, shots):
        turns += [asked(exemplar.question), {"role": "assistant", "content": solution}]
    return [*turns, asked(question)]


def _shown(exemplars: ExemplarSet, strategy: Strategy, shots: int) -> Iterator[tuple[Exemplar, str]]:
    if shots > len(exemplars.exemplars):
        raise ConfigurationError(
            f"few_shot.shots={shots}, but exemplars {exemplars.name} has {len(exemplars.exemplars)}"
        )
    for number, exemplar in enumerate(exemplars.exemplars[:shots], 1):
        solution = exemplar.solution(strategy)
        if solution is None:
            raise ConfigurationError(
                f"exemplars {exemplars.name}: example {number} has no {strategy.value!r} solution"
            )
        yield exemplar, solution


def block_text(question: str) -> str:
    """An empty line would end the block."""
    return re.sub(r"\n\s*\n", "\n", question.strip())
