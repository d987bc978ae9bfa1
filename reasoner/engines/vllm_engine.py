"""vLLM as an engine: one copy of the base, an adapter a request, completions as they finish.

What it guarantees: continuous batching over the whole call (the batch is refilled at every step and never
drained), at most `2 × max_num_seqs` requests inside vLLM at once, prompts checked before anything is
generated.

What it does not: two calls that differ in their requests do not give one request the same sample
(seeds.py), and in bf16 even greedy text can depend on the batch around it.

Samples of one prompt (requests that differ in `index`) go in one by one: vLLM fans `SamplingParams(n=k)`
out to k requests itself, so the prefix cache serves both the same, and `n` would hold the early ones back
until the last ends.

An adapter that is loaded again gets a fresh id and a fresh name inside vLLM. vLLM's `load_inplace` would
read the new weights, but the prefix cache is keyed by the adapter's name (0.24) or name and path (0.31):
blocks computed with the old weights would be reused.

The CPU build (0.24 and 0.31) applies an adapter to the base's requests that run beside it: its index for "no
adapter", -1, picks the last adapter's weights. So there requests without an adapter run first and apart.
"""

import contextlib
import dataclasses
import gc
import itertools
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from reasoner.engines.adapters import check_adapter, forget, require_loaded
from reasoner.engines.prompts import encode_prompts
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.seeds import generation_seed
from reasoner.engines.text import finished, text_behind
from reasoner.engines.vllm_settings import is_cpu_build, set_environment, vllm_arguments
from reasoner.errors import EngineError, ModelError, UsageError
from reasoner.records import Completion, GenerationRequest, Sampling

FINISHES = {"stop": "stop", "length": "length"}
"""vLLM's finish reasons; `abort`, `error` and `repetition` are errors here."""


class VllmEngine:
    """A vLLM engine in this process. It seeds the global random generators of the process that it runs in."""

    def __init__(self, settings: EngineSettings) -> None:
        cpu = is_cpu_build()
        set_environment(cpu)
        from vllm import LLM, EngineArgs

        known = {field.name for field in dataclasses.fields(EngineArgs)}
        self.settings = settings
        self._llm: Any = LLM(**vllm_arguments(settings, cpu, known))
        self._engine: Any = self._llm.llm_engine
        if settings.adapters:
            self._llm.collective_rpc("reasoner_leave_unpinned")
        self._tokenizer: Any = self._llm.get_tokenizer()
        self._max_model_len = int(self._engine.vllm_config.model_config.max_model_len)
        self._window = 2 * int(self._engine.vllm_config.scheduler_config.max_num_seqs)
        self._cpu, self._asleep = cpu, False
        self._apart = cpu and settings.adapters
        self.dead = False
        """Whether vLLM's own engine process has died: nothing but a new engine helps."""
        self._running: dict[str, int] = {}
        self._adapters: dict[str, Any] = {}
        self._adapter_ids = itertools.count(1)
        self._request_ids = itertools.count()

    def load_adapter(self, name: str, path: Path) -> None:
        """Read the adapter now; requests added later use it. Raises ModelError when vLLM can't."""
        from vllm.lora.request import LoRARequest

        self._require_rest()
        rank, enabled = self.settings.max_lora_rank, self.settings.adapters
        folder = check_adapter(name, path, rank, enabled=enabled)
        number = next(self._adapter_ids)
        wanted = LoRARequest(lora_name=f"{name}@{number}", lora_int_id=number, lora_path=str(folder.path))
        try:
            self._engine.add_lora(wanted)
        except Exception as error:
            raise ModelError(f"adapter {name!r} in {folder.path} does not fit the base: {error}") from error
        previous, self._adapters[name] = self._adapters.get(name), wanted
        if previous is not None:
            self._engine.remove_lora(previous.lora_int_id)

    def unload_adapter(self, name: str) -> None:
        """Drop the adapter from vLLM's memory."""
        self._require_rest()
        self._engine.remove_lora(forget(self._adapters, name).lora_int_id)

    def sleep(self) -> None:
        """vLLM's sleep level 1: weights to main memory, cache dropped. The CPU build has no card to free."""
        self._require_rest()
        if self._cpu or self._asleep:
            return
        if not self.settings.options.get("enable_sleep_mode"):
            raise UsageError(
                "this vLLM engine can't sleep; start it with engine.options.enable_sleep_mode=true"
            )
        with self._vllm_errors():
            self._llm.sleep(level=1)
        self._asleep = True

    def wake(self) -> None:
        """Bring weights and cache back to the card."""
        if self._asleep:
            with self._vllm_errors():
                self._llm.wake_up()
            self._asleep = False

    def generate(
        self, requests: Iterable[GenerationRequest], *, logprobs: bool = False
    ) -> Iterator[tuple[int, Completion]]:
        """Yield each completion at the step that ends it. Closing the iterator aborts what is unfinished.

        `logprobs` are those of the distribution that was sampled from: after temperature, top-k and top-p,
        and the plain softmax where decoding is greedy.
        """
        wanted = list(requests)
        for request in wanted:
            require_loaded(request, self._adapters)
        self._require_rest()
        prompts = encode_prompts(self._tokenizer, wanted, self._max_model_len)
        self._llm.collective_rpc("reasoner_reseed", args=(generation_seed(self.settings.seed, wanted),))
        parameters = {s: _sampling_params(s, logprobs) for s in {r.sampling for r in wanted}}
        order = range(len(wanted))
        waiting = deque(sorted(order, key=lambda i: bool(wanted[i].adapter)) if self._apart else order)
        running = self._running
        try:
            while waiting or running:
                while waiting and len(running) < self._window and self._may_join(wanted, waiting[0]):
                    i = waiting.popleft()
                    self._add(i, prompts[i], wanted[i], parameters[wanted[i].sampling])
                for output in self._step():
                    if output.finished and output.request_id in running:
                        i = running.pop(output.request_id)
                        yield i, self._completion(output, wanted[i].sampling, logprobs)
        finally:
            if running:
                with contextlib.suppress(Exception):  # a dead engine has told its error already
                    self._engine.abort_request(list(running))
                running.clear()

    def _completion(self, output: Any, sampling: Sampling, logprobs: bool) -> Completion:
        (sample,) = output.outputs
        ids, text = tuple(int(token) for token in sample.token_ids), sample.text
        if _decoded_late(sampling, logprobs):
            said = ids[:-1] if sample.finish_reason == "stop" else ids
            text = finished(text_behind(self._tokenizer, output.prompt_token_ids, said))
        return Completion(
            text=text,
            finish=FINISHES.get(sample.finish_reason, "error"),
            prompt_tokens=len(output.prompt_token_ids),
            completion_tokens=len(ids),
            token_ids=ids if logprobs else (),
            logprobs=tuple(map(float, sample.logprobs.logprobs)) if logprobs else (),
        )

    def _require_rest(self) -> None:
        if self._running:
            raise EngineError("this engine is generating; finish or close that iterator first")

    def _may_join(self, wanted: list[GenerationRequest], i: int) -> bool:
        """Whether request i may run beside what is running (see the module's header on the CPU build)."""
        if not self._apart or not self._running:
            return True
        beside = next(iter(self._running.values()))
        return bool(wanted[beside].adapter) == bool(wanted[i].adapter)

    def _add(self, i: int, prompt: array, request: GenerationRequest, parameters: Any) -> None:
        from vllm.inputs import tokens_input

        request_id = str(next(self._request_ids))
        self._running[request_id] = i
        lora = self._adapters.get(request.adapter)
        with self._vllm_errors():
            self._engine.add_request(request_id, tokens_input(prompt.tolist()), parameters, lora_request=lora)

    def _step(self) -> list[Any]:
        with self._vllm_errors():
            return list(self._engine.step())

    @contextlib.contextmanager
    def _vllm_errors(self) -> Iterator[None]:
        """As `vllm_errors`; remembers the death of vLLM's engine process."""
        try:
            with vllm_errors():
                yield
        except EngineError as error:
            self.dead = self.dead or type(error.__cause__).__name__ == "EngineDeadError"
            raise

    def close(self) -> None:
        """End vLLM's processes and give its memory back."""
        if self._llm is None:
            return
        from vllm.distributed import cleanup_dist_env_and_memory

        self._engine.engine_core.shutdown()
        self._llm = self._engine = None
        gc.collect()
        cleanup_dist_env_and_memory()


@contextlib.contextmanager
def vllm_errors() -> Iterator[None]:
    """Whatever vLLM raises becomes an EngineError."""
    try:
        yield
    except Exception as error:
        raise EngineError(f"vLLM failed while generating: {type(error).__name__}: {error}") from error


def _sampling_params(sampling: Sampling, logprobs: bool) -> Any:
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    with vllm_errors():
        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_tokens,
            stop=list(sampling.stop) or None,
            detokenize=not _decoded_late(sampling, logprobs),
            logprobs=0 if logprobs else None,  # 0: the sampled token only
            flat_logprobs=logprobs,  # no dictionary a token
            structured_outputs=StructuredOutputsParams(choice=list(sampling.choices))
            if sampling.choices
            else None,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )


def _decoded_late(sampling: Sampling, logprobs: bool) -> bool:
    """Whether text is made here, at the end.

    With log-probabilities vLLM spells every token twice as it comes, for the text and for itself: 15 of the 35
    microseconds of a processor that a token takes beside the model (benchmarks/late_text.py). Only where stop strings
    are to be found must the text be written as it comes.
    """
    return logprobs and not sampling.stop
