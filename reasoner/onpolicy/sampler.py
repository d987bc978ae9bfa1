"""Samples of a policy that changes every step, of its frozen base and of other adapters, from one engine.

The engine holds one copy of the base; a request names the adapter that it wants, or none. After an optimiser step
`sync` sends the adapter alone. Prompts are tokenised here exactly as the engine does, so that training uses the very
tokens that were sampled.

Each sync gets a fresh id inside the engine, so no cached block of the old weights is used, and a sync that fails leaves
the old weights in service. Where one card serves both sides (`share_card`) the sampler sleeps while the optimiser
works: whoever uses it calls `rest` when nothing more is sampled before the update.

An engine that dies is started again, gets the adapters that it had, and the whole call is repeated: the engine seeds
its random stream from the call's requests, so a repeated call draws the same samples (the same engine build and batch).
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reasoner.engines.prompts import encode_prompts
from reasoner.engines.protocol import Engine, PolicyEngine
from reasoner.errors import EngineError, UsageError
from reasoner.onpolicy.adapters import AdapterFolder
from reasoner.onpolicy.parts import Part, Parts
from reasoner.records import Completion, GenerationRequest

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
    version: int = 0
    """How often the adapter had been synced; 0 for the base and for a loaded adapter."""

    @property
    def policy(self) -> str:
        """The adapter that made it, empty for the bare base."""
        return self.request.adapter


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
        share_card: bool = False,
        log: Callable[[str], None] = print,
    ) -> None:
        """`open_engine` starts an engine with `adapters=True`; it is called now, and again if the engine dies. With
        `share_card` it must be one that can sleep."""
        self._open, self._tokenizer, self._max_model_len = open_engine, tokenizer, max_model_len
        self._log = log
        self._folder = folder or AdapterFolder(log=log)
        self.parts = parts or Parts()
        self.share_card = share_card
        """Whether `rest` sleeps: this process's model and the engine take turns on one card."""
        self._loaded: dict[str, Path] = {}
        self._versions: dict[str, int] = {}
        self._asleep = self._closed = False
        self.restarts = 0
        """Engines started again so far."""
        self._engine = open_engine()

    @property
    def versions(self) -> Mapping[str, int]:
        """How often each adapter has been synced."""
        return MappingProxyType(self._versions)

    def sync(self, name: str, model: Any, peft_name: str = "default") -> None:
        """Make the present weights of `model`'s adapter those of `request.adapter == name`.

        Raises ModelError for an adapter that can't be served; then the old weights stay in service.
        """
        with self.parts.part(Part.SYNC):
            path = self._folder.write(name, model, peft_name)
            try:
                self._serve(name, path)
            except BaseException:
                self._folder.remove(path)
                raise
            self._versions[name] = self._versions.get(name, 0) + 1

    def load(self, name: str, path: Path) -> None:
        """Serve a finished adapter from its folder, for example a frozen twin."""
        with self.parts.part(Part.SYNC):
            self._serve(name, Path(path))
            self._versions.pop(name, None)

    def unload(self, name: str) -> None:
        """Forget an adapter; its requests are an EngineError from now on. Needs a `PolicyEngine`."""
        path = self._loaded.pop(name, None)
        self._versions.pop(name, None)
        if path is not None:
            self._with_engine(lambda engine: _policy_engine(engine).unload_adapter(name))
            self._folder.remove(path)

    def sample(self, requests: Sequence[GenerationRequest]) -> list[Sample]:
        """Samples to learn from, in the requests' order. Raises UsageError where decoding would bias the
        log-probabilities: with top-p or top-k they are those of a truncated distribution, which the trainer's are not
        (METHODS 1.3.2)."""
        for request in requests:
            sampling = request.sampling
            if sampling.temperature > 0 and (sampling.top_p < 1 or sampling.top_k > 0):
                raise UsageError(
                    "on-policy sampling needs top_p=1 and top_k=0: the log-probabilities of truncated distributions "
                    "are not the policy's"
                )
        found = self._generate(requests, logprobs=True)
        prompts = encode_prompts(self._tokenizer, requests, self._max_model_len)
        return [
            self._sample(request, tuple(prompt), _checked(request, found.get(i)))
            for i, (request, prompt) in enumerate(zip(requests, prompts, strict=True))
        ]

    def complete(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Texts that nobody learns from, in the requests' order: any decoding, and no log-probabilities, which cost
        vLLM's front end more than all else (benchmarks/late_text.py)."""
        found = self._generate(requests, logprobs=False)
        return [_answered(request, found.get(i)) for i, request in enumerate(requests)]

    def _generate(self, requests: Sequence[GenerationRequest], *, logprobs: bool) -> dict[int, Completion]:
        self.wake()
        with self.parts.part(Part.GENERATE):
            found: dict[int, Completion] = self._with_engine(
                lambda engine: dict(engine.generate(requests, logprobs=logprobs))
            )
            return found

    def sleep(self) -> None:
        """Give the card to the trainer; `sync` and `sample` take it back. An engine without a card does nothing."""
        if not self._asleep:
            with self.parts.part(Part.SLEEP):
                self._with_engine(lambda engine: _policy_engine(engine).sleep())
            self._asleep = True

    def wake(self) -> None:
        """Take the card back."""
        if self._asleep:
            self._asleep = False
            with self.parts.part(Part.SLEEP):
                free_cached_memory()
                self._with_engine(lambda engine: _policy_engine(engine).wake())

    def rest(self) -> None:
        """Sleep if the card is shared. Call it when nothing more is sampled before the next update."""
        if self.share_card:
            self.sleep()

    def close(self) -> None:
        """End the engine and remove the saved adapters. May be called twice."""
        self._closed = True
        self._engine.close()
        self._folder.close()

    def __enter__(self) -> "OnPolicySampler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, name: str, path: Path) -> None:
        """Load it, then let go of the folder that was served before."""
        self.wake()
        self._with_engine(lambda engine: engine.load_adapter(name, path))
        old, self._loaded[name] = self._loaded.get(name), path
        if old is not None and old != path:
            self._folder.remove(old)

    def _sample(self, request: GenerationRequest, prompt: tuple[int, ...], done: Completion) -> Sample:
        if done.prompt_tokens != len(prompt):
            raise EngineError(
                f"problem {request.problem_id}: the engine saw {done.prompt_tokens} prompt tokens, the trainer "
                f"sees {len(prompt)}; their tokenizers differ"
            )
        version = self._versions.get(request.adapter, 0)
        return Sample(request, prompt, done.token_ids, done.logprobs, done.text, done.finish, version)

    def _with_engine(self, call: Callable[[Engine], Any]) -> Any:
        """Do `call`; where it fails because the engine died, start another one and do it again, whole."""
        for restarts_left in range(RESTARTS, -1, -1):
            try:
                return call(self._engine)
            except EngineError as error:
                if self._closed or not restarts_left or getattr(self._engine, "usable", True):
                    raise
                self._log(f"the engine died and is started again: {str(error).splitlines()[0]}")
            self._restart()
        raise AssertionError("unreachable")

    def _restart(self) -> None:
        self._engine.close()
        self._engine = self._open()
        self.restarts += 1
        self._asleep = False
        for name, path in self._loaded.items():
            self._engine.load_adapter(name, path)


def free_cached_memory() -> None:
    """Give the memory that torch keeps for itself on the card back, so that the engine finds room when it wakes."""
    torch = sys.modules.get("torch")  # who has not loaded it holds nothing
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def _policy_engine(engine: Engine) -> PolicyEngine:
    if not isinstance(engine, PolicyEngine):
        raise UsageError(f"{type(engine).__name__} can't unload adapters or sleep; it is no PolicyEngine")
    return engine


def _answered(request: GenerationRequest, done: Completion | None) -> Completion:
    """A completion that came to its end. Raises EngineError."""
    if done is None:
        raise EngineError(f"problem {request.problem_id}: the engine gave no answer")
    if done.finish not in ("stop", "length"):
        raise EngineError(f"problem {request.problem_id}: the engine ended a sample with {done.finish!r}")
    return done


def _checked(request: GenerationRequest, given: Completion | None) -> Completion:
    """A completion that training can rely on. Raises EngineError."""
    done = _answered(request, given)
    if len(done.token_ids) != len(done.logprobs):
        raise EngineError(
            f"problem {request.problem_id}: {len(done.token_ids)} tokens came with {len(done.logprobs)} "
            "log-probabilities"
        )
    if not all(map(math.isfinite, done.logprobs)):
        raise EngineError(f"problem {request.problem_id}: a log-probability is not finite")
    return done
