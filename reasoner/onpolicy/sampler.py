"""Samples from policies that change every step, beside their base, on one engine.

What it guarantees: after `sync` a policy's requests are served from the new weights or fail, never from the old
ones (each sync has a name of its own, and the old name is gone). A dead engine is started again with the adapters
that it had, and the whole call is repeated with the same requests, so that a step sees the same data.

What it does not: repeat samples across a change of the requests beside them (reasoner/engines/seeds.py).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

from reasoner.engines.protocol import PolicyEngine
from reasoner.errors import EngineError, UsageError
from reasoner.onpolicy.samples import Sample
from reasoner.onpolicy.storage import AdapterStorage
from reasoner.onpolicy.timers import Part, Timers
from reasoner.records import Completion, GenerationRequest

T = TypeVar("T")
Encode = Callable[[Sequence[GenerationRequest]], Sequence[Sequence[int]]]
"""Prompts as token ids, by the tokenizer that the engine uses."""


@dataclasses.dataclass(frozen=True, slots=True)
class Served:
    """What the engine knows a policy as. `ours`: the folder is the storage's and goes with the version."""

    name: str
    version: int
    folder: Path
    ours: bool


class Sampler:
    """The current policies and the base, as one source of samples. Use it from one thread."""

    def __init__(
        self,
        start: Callable[[], PolicyEngine],
        encode: Encode | None,
        *,
        storage: AdapterStorage | None = None,
        timers: Timers | None = None,
        restarts: int = 2,
        log: Callable[[str], None] = print,
    ) -> None:
        """`start` makes a running engine; it is called now and after each death. Without `encode` (an engine
        without tokens) samples have no prompt ids."""
        self.timers = timers or Timers()
        self.restarted = 0
        """How often the engine was started again."""
        self._start = start
        self._encode = encode
        self._storage = storage or AdapterStorage(log=log)
        self._restarts = restarts
        self._log = log
        self._served: dict[str, Served] = {}
        self._names: set[str] = set()
        self._asleep = False
        self._engine: PolicyEngine | None = start()

    @property
    def versions(self) -> Mapping[str, int]:
        """The step that each policy is served from."""
        return MappingProxyType({policy: served.version for policy, served in self._served.items()})

    @property
    def engine(self) -> PolicyEngine:
        """The running engine. Raises EngineError after `close`."""
        if self._engine is None:
            raise EngineError("this sampler is closed")
        return self._engine

    def sync(self, model: Any, *, step: int, policies: Sequence[str] | None = None) -> None:
        """Serve the current weights of `policies` (by default every adapter of the model) as version `step`.

        Raises ModelError for an adapter that can't be served, EngineError when the engine stays dead.
        """
        with self.timers.part(Part.SYNC):
            for policy in policies or sorted(model.peft_config):
                name = self._new_name(policy, step)
                folder = self._storage.save(model, policy, name)
                self._replace(policy, Served(name, step, folder, True))

    def load(self, policy: str, folder: Path, *, version: int = 0) -> None:
        """Serve the adapter in `folder`, which stays the caller's, as `policy`."""
        with self.timers.part(Part.SYNC):
            name = self._new_name(policy, version)
            self._replace(policy, Served(name, version, Path(folder).resolve(), False))

    def unload(self, policy: str) -> None:
        """Forget a policy; its requests are an EngineError from now on."""
        old = self._served.pop(policy, None)
        if old is not None:
            self._drop(old)

    def sample(self, requests: Sequence[GenerationRequest], *, evaluation: bool = False) -> list[Sample]:
        """One sample a request, in their order; `request.adapter` names a policy or, empty, the base.

        Raises UsageError for top-p or top-k with a policy, whose log-probabilities would not be those of the
        trainer (not with `evaluation`), and EngineError for a policy that was never synced, or when the engine
        dies more often than it may be restarted.
        """
        wanted = list(requests)
        served = [self._of(request, evaluation) for request in wanted]
        prompts = self._encode(wanted) if self._encode else [()] * len(wanted)
        asked = [
            dataclasses.replace(request, adapter=of.name if of else "")
            for request, of in zip(wanted, served, strict=True)
        ]
        with self.timers.part(Part.GENERATE):
            done = self._with_restarts(lambda: self._generate(asked))
        return [
            _sample(*row) for row in zip(wanted, prompts, done, served, strict=True)
        ]  # fmt: skip

    def sleep(self) -> None:
        """Give the card to the trainer. Nothing happens on an engine that holds no card."""
        if not self._asleep:
            with self.timers.part(Part.SLEEP):
                self._with_restarts(lambda: self.engine.sleep())
            self._asleep = True

    def wake(self) -> None:
        """Take the card back; `sync` and `sample` do it themselves."""
        if self._asleep:
            self._asleep = False
            with self.timers.part(Part.SLEEP):
                self._with_restarts(lambda: self.engine.wake())

    def close(self) -> None:
        """End the engine and remove the saved adapters. May be called twice."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()
        self._storage.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _new_name(self, policy: str, version: int) -> str:
        if not policy or "@" in policy or "/" in policy:
            raise UsageError(f"a policy's name must not be empty nor hold '@' or '/': {policy!r}")
        name, number = f"{policy}@{version}", 1
        while name in self._names:
            name, number = f"{policy}@{version}.{number}", number + 1
        self._names.add(name)
        return name

    def _replace(self, policy: str, new: Served) -> None:
        """Load `new`, then let go of what was served before."""
        self.wake()
        try:
            self._with_restarts(lambda: self.engine.load_adapter(new.name, new.folder))
        except BaseException:
            if new.ours:
                self._storage.remove(new.folder)
            raise
        old, self._served[policy] = self._served.get(policy), new
        if old is not None:
            self._drop(old)

    def _drop(self, old: Served) -> None:
        with suppress(EngineError):  # dead: the next call notices and starts an engine that never knew it
            self.engine.unload_adapter(old.name)
        if old.ours:
            self._storage.remove(old.folder)

    def _of(self, request: GenerationRequest, evaluation: bool) -> Served | None:
        if not request.adapter:
            return None
        if request.adapter not in self._served:
            names = ", ".join(sorted(self._served)) or "none"
            raise EngineError(
                f"policy {request.adapter!r} was never synced (there are: {names}); call sync first"
            )
        sampling = request.sampling
        if not evaluation and sampling.temperature > 0 and (sampling.top_p < 1.0 or sampling.top_k > 0):
            raise UsageError(
                f"policy {request.adapter!r}: top_p={sampling.top_p}, top_k={sampling.top_k} bias the "
                "log-probabilities; train with top_p=1 and top_k=0"
            )
        return self._served[request.adapter]

    def _generate(self, asked: list[GenerationRequest]) -> list[Completion]:
        self.wake()
        done: list[Completion | None] = [None] * len(asked)
        for i, completion in self.engine.generate(asked, logprobs=True):
            done[i] = completion
        return [_checked(request, c) for request, c in zip(asked, done, strict=True)]

    def _with_restarts(self, action: Callable[[], T]) -> T:
        """Do it; after a death of the engine start another one and do it again."""
        for left in range(self._restarts, -1, -1):
            try:
                return action()
            except EngineError as error:
                if left == 0 or getattr(self.engine, "usable", True):
                    raise
                self._log(f"the engine died and is started again: {str(error).splitlines()[0]}")
                self._restart()
        raise AssertionError("unreachable")

    def _restart(self) -> None:
        self.engine.close()
        self._engine = self._start()
        self._asleep = False
        self.restarted += 1
        for served in self._served.values():
            self.engine.load_adapter(served.name, served.folder)


def _checked(request: GenerationRequest, completion: Completion | None) -> Completion:
    """A completion that training can rely on. Raises EngineError."""
    if completion is None:
        raise EngineError(f"problem {request.problem_id}: the engine gave no answer")
    if completion.finish not in ("stop", "length"):
        raise EngineError(f"problem {request.problem_id}: the engine ended with {completion.finish!r}")
    if not len(completion.token_ids) == len(completion.logprobs) > 0:
        raise EngineError(
            f"problem {request.problem_id}: {len(completion.token_ids)} tokens came with "
            f"{len(completion.logprobs)} log-probabilities"
        )
    if not all(map(math.isfinite, completion.logprobs)):
        raise EngineError(f"problem {request.problem_id}: a log-probability is not finite")
    return completion


def _sample(
    request: GenerationRequest, prompt: Sequence[int], done: Completion, served: Served | None
) -> Sample:
    if prompt and len(prompt) != done.prompt_tokens:
        raise EngineError(
            f"problem {request.problem_id}: the engine saw {done.prompt_tokens} prompt tokens, the trainer's "
            f"tokenizer makes {len(prompt)}; both must use the tokenizer of the base"
        )
    return Sample(
        tuple(prompt), done.token_ids, done.logprobs, done.text, done.finish,
        request.adapter, served.version if served else -1,
    )  # fmt: skip
