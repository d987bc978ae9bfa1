"""Who writes a turn: a voice (an engine or an on-policy sampler) under one adapter, chat template and sampling."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from reasoner.engines.protocol import Engine
from reasoner.errors import EngineError
from reasoner.methods.multiturn.episode import Kind, Turn
from reasoner.prompts.chat import Rendered
from reasoner.prompts.policy import Message
from reasoner.records import GenerationRequest, Sampling

GAP = "\n…\n"
Heard = Callable[[int, int], None]
"""Progress: (done, total)."""


@dataclass(frozen=True, slots=True)
class Said:
    """What came back for a request. Ids and log-probabilities are there where training needs them."""

    text: str
    finish: str
    tokens: int
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()


class Voice(Protocol):
    """Answers requests, all in one call of the engine, in their order."""

    def say(self, requests: Sequence[GenerationRequest], heard: Heard | None = None) -> list[Said]: ...


@dataclass(frozen=True, slots=True)
class PlainVoice:
    """An engine, for evaluation: texts without ids."""

    engine: Engine

    def say(self, requests: Sequence[GenerationRequest], heard: Heard | None = None) -> list[Said]:
        """See `Voice`. Raises EngineError where the engine leaves a request out."""
        found: dict[int, Said] = {}
        for i, done in self.engine.generate(requests):
            found[i] = Said(done.text, done.finish, done.completion_tokens)
            if heard is not None:
                heard(len(found), len(requests))
        if len(found) != len(requests):
            raise EngineError(f"the engine answered {len(found)} of {len(requests)} requests")
        return [found[i] for i in range(len(requests))]


@dataclass(frozen=True, slots=True)
class SampledVoice:
    """An on-policy sampler (`onpolicy.sampler.OnPolicySampler`). Without `keep`, texts without ids, from which nothing
    is learned."""

    sampler: Any
    keep: bool = True

    def say(self, requests: Sequence[GenerationRequest], heard: Heard | None = None) -> list[Said]:
        """See `Voice`. Raises EngineError where engine and trainer read a prompt differently (with `keep`)."""
        if self.keep:
            found = [
                Said(s.text, s.finish, len(s.token_ids), s.prompt_ids, s.token_ids, s.logprobs)
                for s in self.sampler.sample(requests)
            ]
        else:
            found = [Said(c.text, c.finish, c.completion_tokens) for c in self.sampler.complete(requests)]
        if heard is not None:
            heard(len(found), len(requests))
        return found


class Renderer(Protocol):
    """What turns a conversation into the text of a prompt (`prompts.chat.ChatRenderer`)."""

    def render(self, messages: Sequence[Message]) -> Rendered: ...


@dataclass(frozen=True)
class Speaker:
    """One writer of turns. `adapter` is empty for the bare base; the tokenizer counts and cuts texts."""

    voice: Voice
    renderer: Renderer
    sampling: Sampling
    adapter: str = ""
    tokenizer: Any = None

    def with_adapter(self, adapter: str) -> "Speaker":
        """The same voice under another adapter."""
        return replace(self, adapter=adapter)

    def say(
        self,
        kind: Kind,
        wanted: Sequence[tuple[str, int, list[Message]]],
        seed: int,
        heard: Heard | None = None,
    ) -> list[Turn]:
        """One turn a (problem id, index, conversation), all in one call."""
        requests = [self._request(problem, index, messages, seed) for problem, index, messages in wanted]
        return [
            Turn(kind, r.problem_id, s.prompt_ids, s.token_ids, s.logprobs, s.text, s.finish, s.tokens)
            for r, s in zip(requests, self.voice.say(requests, heard), strict=True)
        ]

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
        ids = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        if len(ids) <= budget:
            return text
        half = max(1, (budget - 4) // 2)
        head, tail = (
            self.tokenizer.decode(part, skip_special_tokens=True) for part in (ids[:half], ids[-half:])
        )
        return f"{head}{GAP}{tail}"
