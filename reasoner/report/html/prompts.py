"""Prompts made again, since a completion keeps only the hash of its prompt.

A prompt is made once with a mark in the question's place and then compared, by hash, for every question: what the page
calls exact is what the model saw. Where the model's chat template is not at hand the conversation alone is shown, and
the page says so.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from reasoner.errors import ReasonerError
from reasoner.ids import content_hash
from reasoner.prompts import ChatRenderer, few_shot_prompt, few_shot_turns, load_exemplars, load_template
from reasoner.prompts.few_shot import block_text
from reasoner.prompts.policy import Attempt
from reasoner.records import Problem, Strategy
from reasoner.report.html.trajectories import Collection, Prompt

MARK = "\u27e6the question\u27e7"
PLAIN = "the conversation without the model's chat template"


class Prompts:
    """Makes prompts again, each distinct one once. `chat` allows loading tokenizers (some seconds)."""

    def __init__(self, collection: Collection, chat: bool) -> None:
        self._collection, self._chat = collection, chat
        self._numbers: dict[str, int | None] = {}
        self._renderers: dict[Path | None, ChatRenderer | None] = {}

    def few_shot(
        self, problem: Problem, strategy: Strategy, how: dict[str, Any], model: Path | None, prompt_hash: str
    ) -> int | str | None:
        """The number of the prompt in the collection, a text of its own, or None where it cannot be made.

        `how` is a FewShotConfig as a journal keeps it.
        """
        exemplars, shots, chat = how["exemplars"], how["shots"], how.get("layout") == "chat"
        renderer = self._renderer(model) if chat else None

        def make(question: str) -> str:
            if not chat:
                return few_shot_prompt(load_exemplars(exemplars), strategy, question, shots)
            turns = few_shot_turns(load_exemplars(exemplars), strategy, question, shots)
            return renderer.render(turns).text if renderer else "\n\n".join(turn["content"] for turn in turns)

        key = content_hash(["few-shot", strategy, exemplars, shots, chat, str(model), renderer is not None])
        is_exact = not chat or renderer is not None
        return self._number(key, make, block_text(problem.question), prompt_hash, is_exact)

    def policy(
        self,
        problem: Problem,
        template: str,
        context: Any,
        tried: list[str],
        solutions: list[str],
        model: Path | None,
        prompt_hash: str,
    ) -> int | str | None:
        """As `few_shot`, for a trained policy's turn."""
        pairs = [Attempt(Strategy(s), text) for s, text in zip(tried, solutions, strict=False)]
        renderer = self._renderer(model)

        def make(question: str) -> str:
            messages = load_template(template).messages(question, pairs, context)
            return renderer.render(messages).text if renderer else messages[0]["content"]

        shown = solutions if context == "full" else []
        key = content_hash(["policy", template, context, tried, shown, str(model), renderer is not None])
        return self._number(key, make, problem.question.strip(), prompt_hash, renderer is not None)

    def _renderer(self, model: Path | None) -> ChatRenderer | None:
        if model not in self._renderers:
            self._renderers[model] = None
            if model is not None and self._chat:
                with suppress(ReasonerError):  # no tokenizer to be had: the conversation is shown plainly
                    self._renderers[model] = ChatRenderer(model)
        return self._renderers[model]

    def _number(
        self, key: str, make: Callable[[str], str], question: str, prompt_hash: str, whole: bool
    ) -> int | str | None:
        if key not in self._numbers:
            self._numbers[key] = self._add(make, whole)
        number = self._numbers[key]
        if number is None or not whole:
            return number
        if content_hash(question.join(self._collection.prompts[number].parts), 16) == prompt_hash:
            return number
        try:  # a template that changes the question's text
            text = make(question)
        except ReasonerError:
            return None
        return text if content_hash(text, 16) == prompt_hash else None

    def _add(self, make: Callable[[str], str], whole: bool) -> int | None:
        try:
            parts = tuple(make(MARK).split(MARK))
        except ReasonerError:
            return None
        self._collection.prompts.append(Prompt(parts, whole, "" if whole else PLAIN))
        return len(self._collection.prompts) - 1
