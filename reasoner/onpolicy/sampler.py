"""Samples of a policy that changes every step, of its frozen base and of other adapters, from one engine.

The engine holds one copy of the base; a request names the adapter that it wants, or none. After an optimiser step
`sync` sends the adapter alone. Prompts are tokenised here exactly as the engine does, so that training uses the very
tokens that were sampled.

An engine that dies is started again, gets the adapters that it had, and the whole call is repeated: the engine seeds
its random stream from the call's requests, so a repeated call draws the same samples (the same engine build and batch).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.engines.prompts import encode_prompts
from reasoner.engines.protocol import Engine
from reasoner.errors import EngineError, UsageError
from reasoner.onpolicy.adapters import AdapterFolder
from reasoner.onpolicy.parts import Parts
from reasoner.records import GenerationRequest

RESTARTS = 2
"""How often one call may start a dead engine again before the error is passed on."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sampled completion.

    `prompt_ids` [P] and `token_ids` [T] are token ids, `logprobs` [T] natural logarithms of the sampled tokens under
    the distribution that they were drawn from (temperature included). `finish` is `stop` or `length`.
    """

    request: GenerationRequest
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    text: str
    finish: str


class OnPolicySampler:
    """Brings adapters to an engine and samples back. A context manager; not for several threads."""

    def __init__(
        self,
        open_engine: Callable[[], Engine],
        tokenizer: Any,
        max_model_len: int,
        *,
        folder: AdapterFolder | None = None,
        parts: Parts | None = None,
    ) -> None:
        """`open_engine` starts an engine with `adapters=True`; it is called now, and again if the engine dies."""
        self._open, self._tokenizer, self._max_model_len = open_engine, tokenizer, max_model_len
        self._folder = folder or AdapterFolder()
        self.parts = parts or Parts()
        self._loaded: dict[str, Path] = {}
        self.restarts = 0
        """Engines started again so far."""
        self._engine = open_engine()

    def sync(self, name: str, model: Any, peft_name: str = "default") -> None:
        """Make the present weights of `model`'s adapter those of `request.adapter == name`."""
        with self.parts.part("sync"):
            path = self._folder.write(name, model, peft_name)
            self._loaded[name] = path
            self._with_engine(lambda engine: engine.load_adapter(name, path))

    def load(self, name: str, path: Path) -> None:
        """Serve a finished adapter from its folder, for example a frozen twin."""
        self._loaded[name] = Path(path)
        self._with_engine(lambda engine: engine.load_adapter(name, path))

    def sample(self, requests: Sequence[GenerationRequest]) -> list[Sample]:
        """All requests, in their order. Raises UsageError where decoding would bias the log-probabilities.

        With top-p or top-k they are those of a truncated distribution, which the trainer's are not (METHODS 1.3.2).
        """
        for request in requests:
            if request.sampling.temperature > 0 and (
                request.sampling.top_p < 1 or request.sampling.top_k > 0
            ):
                raise UsageError(
                    "on-policy sampling needs top_p=1 and top_k=0: the log-probabilities of truncated distributions "
                    "are not the policy's"
                )
        with self.parts.part("generate"):
            found = self._with_engine(lambda engine: dict(engine.generate(requests, logprobs=True)))
        prompts = encode_prompts(self._tokenizer, requests, self._max_model_len)
        samples = []
        for i, (request, prompt) in enumerate(zip(requests, prompts, strict=True)):
            done = found[i]
            if done.finish not in ("stop", "length"):
                raise EngineError(
                    f"problem {request.problem_id}: the engine ended a sample with {done.finish!r}"
                )
            if done.prompt_tokens != len(prompt):
                raise EngineError(
                    f"problem {request.problem_id}: the engine saw {done.prompt_tokens} prompt tokens, the trainer "
                    f"sees {len(prompt)}; their tokenizers differ"
                )
            samples.append(
                Sample(request, tuple(prompt), done.token_ids, done.logprobs, done.text, done.finish)
            )
        return samples

    def close(self) -> None:
        self._engine.close()
        self._folder.close()

    def __enter__(self) -> "OnPolicySampler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _with_engine(self, call: Callable[[Engine], Any]) -> Any:
        """Do `call`; where it fails because the engine died, start another one and do it again, whole."""
        for restarts_left in range(RESTARTS, -1, -1):
            try:
                return call(self._engine)
            except EngineError:
                if getattr(self._engine, "usable", True) or not restarts_left:
                    raise
            self._restart()
        raise AssertionError("unreachable")

    def _restart(self) -> None:
        self._engine.close()
        self._engine = self._open()
        self.restarts += 1
        for name, path in self._loaded.items():
            self._engine.load_adapter(name, path)
