"""What every engine does: turn requests into completions, one copy of the base and an adapter a request."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from reasoner.records import Completion, GenerationRequest


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How to start an engine. `kind` is `vllm`, `transformers` or `scripted`.

    `options` go to the engine as they are (`max_model_len`, `gpu_memory_utilization`, `block_size`,
    `script`, …); an unknown option is a `ConfigurationError`.
    """

    kind: str
    model_path: Path
    """A folder with config, tokenizer and safetensors weights."""
    dtype: str = "auto"
    """`auto` is bfloat16, or float32 on a processor without bfloat16 instructions."""
    seed: int = 0
    adapters: bool = False
    """Whether adapters may be loaded. Off where it costs speed and is not needed."""
    max_lora_rank: int = 16
    options: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Engine(Protocol):
    """A running model. All methods are called from one thread; `close` may be called twice."""

    def load_adapter(self, name: str, path: Path) -> None:
        """Make the adapter in folder `path` (safetensors) usable as `request.adapter == name`.

        Loading another folder under a known name replaces its weights: later requests use the new ones.
        """

    def generate(
        self, requests: Iterable[GenerationRequest], *, logprobs: bool = False
    ) -> Iterator[tuple[int, Completion]]:
        """Yield `(i, completion)` for the i-th request as soon as it is finished, in any order.

        Every request is answered exactly once or the iterator raises `EngineError`. Requests that differ
        only in `index` are independent samples of one prompt. With `logprobs`, `token_ids` and `logprobs`
        are filled in. Where `sampling.choices` are given the text is one of them.
        """

    def close(self) -> None:
        """End the engine and give its memory back."""


@runtime_checkable
class PolicyEngine(Engine, Protocol):
    """An engine whose adapters come and go: what the on-policy loop needs beyond `Engine`."""

    def unload_adapter(self, name: str) -> None:
        """Forget a loaded adapter; later requests for `name` are an `EngineError`. An unknown name is too."""

    def sleep(self) -> None:
        """Give the card's memory back until `wake`; adapters stay loaded. Nothing else may be called between.

        An engine that holds no card's memory does nothing. Sleeping twice is sleeping once.
        """

    def wake(self) -> None:
        """Be ready to generate again. Nothing happens to an engine that is awake."""
