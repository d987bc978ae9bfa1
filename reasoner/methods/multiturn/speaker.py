"""Who writes a turn: an engine under one adapter, with its chat template, its sampling and its tokenizer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from reasoner.engines.prompts import encode_prompts
from reasoner.engines.protocol import Engine
from reasoner.errors import EngineError
from reasoner.methods.multiturn.episode import Kind, Turn
from reasoner.prompts.chat import Rendered
from reasoner.prompts.policy import Message
from reasoner.records import Completion, GenerationRequest, Sampling

NO_LIMIT = 1 << 30
GAP = "\n…\n"


class Renderer(Protocol):
    """What turns a conversation into the text of a prompt (`prompts.chat.ChatRenderer`)."""

    def render(self, messages: Sequence[Message]) -> Rendered: ...


@dataclass(frozen=True)
class Speaker:
    """One writer of turns. `adapter` is empty for the bare base; without a tokenizer no prompt ids are kept."""

    engine: Engine
    renderer: Renderer
    sampling: Sampling
    adapter: str = ""
    tokenizer: Any = None

    def with_adapter(self, adapter: str) -> "Speaker":
        """The same engine under another adapter."""
        return replace(self, adapter=adapter)

    def say(
        self, kind: Kind, wanted: Sequence[tuple[str, int, list[Message]]], seed: int,
        heard: Callable[[int, int], None] | None = None,
    ) -> list[Turn]:  # fmt: skip
        """One turn a (problem id, index, conversation), all in one engine call. `heard(done, total)` is progress.

        Raises EngineError where the engine tokenised a prompt otherwise than the trainer will.
        """
        requests = [self._request(problem, index, messages, seed) for problem, index, messages in wanted]
        keep = self.tokenizer is not None
        prompts = encode_prompts(self.tokenizer, requests, NO_LIMIT) if keep else [()] * len(requests)
        turns: list[Turn | None] = [None] * len(requests)
        done = 0
        for i, completion in self.engine.generate(requests, logprobs=keep):
            turns[i] = _turn(kind, requests[i], tuple(prompts[i]), completion, keep)
            done += 1
            if heard is not None:
                heard(done, len(requests))
        if None in turns:
            raise EngineError(f"the engine answered {done} of {len(requests)} requests")
        return [turn for turn in turns if turn is not None]

    def _request(self, problem: str, index: int, messages: list[Message], seed: int) -> GenerationRequest:
        text, special = self.renderer.render(messages)
        return GenerationRequest(problem, text, self.sampling, seed, index, self.adapter, special)

    def count(self, messages: list[Message]) -> int:
        """Prompt tokens of a conversation."""
        text, special = self.renderer.render(messages)
        return len(self.tokenizer(text, add_special_tokens=special)["input_ids"])

    def clipped(self, text: str, budget: int) -> str:
        """`text` within `budget` tokens: its head and its tail, where an answer is. Text that a model drew within the
        budget fits, but for broken characters, which take more tokens when they are read again."""
        if self.tokenizer is None or len(text) <= budget:  # a token is at least one character
            return text
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) <= budget:
            return text
        half = max(1, (budget - 4) // 2)
        head, tail = (
            self.tokenizer.decode(part, skip_special_tokens=True) for part in (ids[:half], ids[-half:])
        )
        return f"{head}{GAP}{tail}"


def _turn(
    kind: Kind, request: GenerationRequest, prompt: tuple[int, ...], done: Completion, keep: bool
) -> Turn:
    if keep and done.prompt_tokens != len(prompt):
        raise EngineError(
            f"problem {request.problem_id}: the engine read the prompt as {done.prompt_tokens} tokens and the trainer "
            f"as {len(prompt)}; both must use the model folder's tokenizer"
        )
    return Turn(
        kind, request.problem_id, prompt, done.token_ids if keep else (), done.logprobs if keep else (), done.text,
        done.finish, done.completion_tokens,
    )  # fmt: skip
