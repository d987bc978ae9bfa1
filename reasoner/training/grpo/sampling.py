"""Where the policy's samples come from, and answers of the bare base: one engine with one copy of the base, or several.

vLLM or transformers in processes of their own, or vLLM's server on another machine, which gets the adapter after each
step; or, with a 4-bit base, the trainer's own model.
"""

import json
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

from reasoner.config.grpo import GrpoConfig
from reasoner.config.smart import EngineConfig
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.start import open_engine
from reasoner.errors import ConfigurationError
from reasoner.hardware import served_dtype
from reasoner.onpolicy.gate import Gate, coarser
from reasoner.onpolicy.opening import adapters_for, open_server, policy_settings
from reasoner.onpolicy.parts import Parts
from reasoner.onpolicy.sampler import OnPolicySampler, free_cached_memory
from reasoner.onpolicy.trl_rollout import rollout_func
from reasoner.records import Completion, GenerationRequest
from reasoner.training.grpo.spec import GrpoSpec

DEFAULT_LENGTH = 4096
"""Context of the engine where `engine.options.max_model_len` does not say."""


class Sampling:
    """The sampler of a training, and a frozen base's way to the same engine. A context manager."""

    def __init__(
        self, spec: GrpoSpec, device: str, tokenizer: Any, parts: Parts | None = None, *, samples: bool = True
    ) -> None:
        """Starts the engine, in the process that `samples`; `parts` counts its time. ConfigurationError where a prompt
        and a completion do not fit into its context."""
        self._spec, self.device, self.tokenizer = spec, device, tokenizer
        self.parts = parts or Parts()
        self._options = spec.engine_options
        self.max_model_len = self._context_length()
        self._sampler: OnPolicySampler | None = None
        self._trainer: Any = None
        self._hook: Callable[[list[Any], Any], dict[str, Any]] | None = None
        if samples and not spec.grpo.load_in_4bit:
            self._sampler = OnPolicySampler(
                self._open, tokenizer, self.max_model_len, folder=adapters_for(spec.grpo.server), parts=self.parts,
                share_card=bool(spec.grpo.share_card),
            )  # fmt: skip

    @property
    def restarts(self) -> int:
        """Engines that died and were started again."""
        return self._sampler.restarts if self._sampler else 0

    def rollout(self, add_special_tokens: bool) -> Callable[[list[Any], Any], dict[str, Any]]:
        """The function that TRL calls with rendered prompts. Each trainer gets a gate of its own."""

        def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
            if self._trainer is not trainer:
                self.release()
                self._attach(trainer, add_special_tokens)
            assert self._hook is not None
            return self._hook(prompts, trainer)

        return rollout

    def complete(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """The bare base's completions, in order. Nothing is trained on them, so their distribution may be cut."""
        assert self._sampler is not None, "the base is asked after the first rollout"
        return self._sampler.complete(requests)

    def make_room(self) -> None:
        """Give back what torch keeps on this process's card, where it is shared: an engine may wake there."""
        if self._spec.grpo.share_card:
            free_cached_memory()

    def rest(self) -> None:
        """Let the engine sleep where it shares the card; call it after a step's last question."""
        if self._sampler is not None:
            self._sampler.rest()

    def release(self) -> None:
        """Let go of the trainer, whose model must leave the memory before another one is loaded."""
        if self._spec.grpo.load_in_4bit and self._sampler is not None:  # it is the trainer's own model
            self._sampler.close()
            self._sampler = None
        self._trainer = self._hook = None

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close()
        self._sampler = self._trainer = self._hook = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _attach(self, trainer: Any, add_special_tokens: bool) -> None:
        spec = self._spec
        if spec.grpo.load_in_4bit:
            self._sampler = OnPolicySampler(
                lambda: self._live(trainer), self.tokenizer, self.max_model_len, parts=self.parts
            )
        assert self._sampler is not None
        self._trainer = trainer
        fresh = trainer.state.global_step == 0 and spec.start is None
        self._hook = rollout_func(
            self._sampler,
            lambda prompt: (str(prompt), add_special_tokens),
            max_tokens=spec.grpo.max_completion_length,
            gate=gate_of(spec.engine, spec.grpo, self.device, fresh=fresh),
            seed=spec.seed,
            last=False,  # the reward may ask the base afterwards, and lets the engine rest
        )

    def _open(self) -> Any:
        spec = self._spec
        settings = EngineSettings(
            spec.engine.kind, spec.base, spec.engine.dtype, max_lora_rank=spec.grpo.lora.r,
            options={**self._options, "max_model_len": self.max_model_len},
        )  # fmt: skip
        if spec.grpo.server.url:
            return open_server(spec.grpo.server, settings)
        wanted = policy_settings(settings, 1, bool(spec.grpo.share_card))
        return open_engine(wanted, log=spec.work / "engine.log", engines=spec.samplers)

    def _live(self, trainer: Any) -> Any:
        from reasoner.training.grpo.live_engine import LiveEngine

        model = trainer.accelerator.unwrap_model(trainer.model)
        bf16 = self._spec.grpo.precision == "bf16"
        return LiveEngine(model, self.tokenizer, self.max_model_len, bf16=bf16)

    def _context_length(self) -> int:
        grpo = self._spec.grpo
        config = json.loads((self._spec.base / "config.json").read_text(encoding="utf-8"))
        positions = config.get("max_position_embeddings") or DEFAULT_LENGTH
        length = int(self._options.get("max_model_len") or min(positions, DEFAULT_LENGTH))
        if grpo.max_prompt_length + grpo.max_completion_length > length:
            raise ConfigurationError(
                f"grpo.max_prompt_length + grpo.max_completion_length = "
                f"{grpo.max_prompt_length + grpo.max_completion_length} tokens do not fit into the engine's context of "
                f"{length}; lower them or set engine.options.max_model_len"
            )
        return length


def gate_of(engine: EngineConfig, grpo: GrpoConfig, device: str, *, fresh: bool) -> Gate:
    """The gate of a training whose adapter is `fresh` or not; a 4-bit base is served in bfloat16."""
    cpu = device == "cpu"
    served = "bfloat16" if grpo.load_in_4bit else served_dtype(engine.dtype, cpu)
    exact = grpo.precision == "fp32" or (grpo.precision == "auto" and cpu)
    return Gate(coarser(served, "float32" if exact else "bfloat16", fresh=fresh), threshold=grpo.gate)
