"""transformers' `generate` as an engine, for small tests and for machines without vLLM (CPU or CUDA).

Requests are grouped by adapter and sampling, sorted by prompt length and run in batches of `batch_size`; a
batch ends with its longest completion (no continuous batching: on 2 cores vLLM is 1.5 times faster in
bf16). Options: `batch_size`, `max_model_len`, `device` (`cpu`, `cuda`, `cuda:1`), `attn_implementation`.
"""

import contextlib
import itertools
from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from reasoner.engines.adapters import check_adapter, forget, require_loaded
from reasoner.engines.choice_limit import ChoiceLimit
from reasoner.engines.finish_tracker import FinishTracker
from reasoner.engines.options import check_options
from reasoner.engines.prompts import encode_prompts
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.seeds import generation_seed
from reasoner.errors import ConfigurationError, EngineError, ModelError
from reasoner.hardware import served_dtype
from reasoner.records import Completion, GenerationRequest, Sampling

OPTIONS = {"batch_size", "max_model_len", "device", "attn_implementation"}


class TransformersEngine:
    """A transformers model in this process; adapters by PEFT."""

    def __init__(self, settings: EngineSettings) -> None:
        options = check_options("transformers", settings.options, OPTIONS)
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.settings = settings
        self._batch_size = int(options.get("batch_size", 16))
        if self._batch_size < 1:
            raise ConfigurationError(f"engine.options.batch_size must be 1 or more, not {self._batch_size}")
        self._device = torch.device(options.get("device") or ("cuda" if torch.cuda.is_available() else "cpu"))
        extra = {k: options[k] for k in ("attn_implementation",) if k in options}
        self._tokenizer: Any = AutoTokenizer.from_pretrained(
            str(settings.model_path), trust_remote_code=False
        )
        loader: Any = AutoModelForCausalLM
        model: Any = loader.from_pretrained(
            str(settings.model_path),
            dtype=getattr(torch, served_dtype(settings.dtype, self._device.type == "cpu")),
            use_safetensors=True,
            trust_remote_code=False,
            **extra,
        )
        # Frozen from the start, as PEFT leaves the base: torch computes weights that may be trained by another kernel,
        # so that the base's log-probabilities would change (by 1e-6) with the first adapter.
        self._model: Any = model.to(self._device).eval().requires_grad_(False)
        limit = getattr(self._model.config, "max_position_embeddings", None)
        self._max_model_len = int(options.get("max_model_len") or limit or 2048)
        self._end_ids = _end_ids(self._model, self._tokenizer)
        self._adapters: dict[str, str] = {}
        self._adapter_ids = itertools.count(1)

    def load_adapter(self, name: str, path: Path) -> None:
        """Read the adapter now. Raises ModelError when it does not fit the base."""
        folder = check_adapter(name, path, self.settings.max_lora_rank, enabled=self.settings.adapters)
        from peft import PeftModel

        inner = f"adapter{next(self._adapter_ids)}"
        try:
            if isinstance(self._model, PeftModel):
                self._model.load_adapter(str(folder.path), inner)
            else:
                self._model = PeftModel.from_pretrained(self._model, str(folder.path), adapter_name=inner)
        except Exception as error:
            raise ModelError(f"adapter {name!r} in {folder.path} does not fit the base: {error}") from error
        self._model.to(self._device).eval()
        previous, self._adapters[name] = self._adapters.get(name), inner
        if previous is not None:
            self._model.set_adapter(inner)  # PEFT can't delete the active one
            self._model.delete_adapter(previous)

    def unload_adapter(self, name: str) -> None:
        """Drop the adapter's weights."""
        inner = forget(self._adapters, name)
        if self._adapters:
            self._model.set_adapter(next(iter(self._adapters.values())))  # PEFT can't delete the active one
            self._model.delete_adapter(inner)
        else:
            self._model = self._model.unload()  # the bare base

    def sleep(self) -> None:
        """Move the model to main memory, when it is on a card."""
        if self._device.type == "cuda":
            import torch

            self._model.to("cpu")
            torch.cuda.empty_cache()

    def wake(self) -> None:
        """Move the model back to its device."""
        self._model.to(self._device)

    def generate(
        self, requests: Iterable[GenerationRequest], *, logprobs: bool = False
    ) -> Iterator[tuple[int, Completion]]:
        """Yield completions batch by batch. `logprobs` are of the distribution that was sampled from."""
        wanted = list(requests)
        for request in wanted:
            require_loaded(request, self._adapters)
        prompts = encode_prompts(self._tokenizer, wanted, self._max_model_len)
        seed = generation_seed(self.settings.seed, wanted)
        for number, batch in enumerate(_batches(wanted, prompts, self._batch_size)):
            first = wanted[batch[0]]
            with self._adapter(first.adapter):
                completions = self._run([prompts[i] for i in batch], first.sampling, seed + number, logprobs)
            yield from zip(batch, completions, strict=True)

    def close(self) -> None:
        """Forget the model and give the GPU's memory back."""
        self._model = None
        import torch

        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def _adapter(self, name: str) -> Iterator[None]:
        """Switch to a loaded adapter, or to the bare base."""
        if name:
            self._model.set_adapter(self._adapters[name])
            yield
        elif self._adapters:
            with self._model.disable_adapter():
                yield
        else:
            yield

    @contextlib.contextmanager
    def _without_defaults(self) -> Iterator[None]:
        """Put the model's own generation defaults aside: transformers fills in what a call leaves open, such as the
        repetition penalty of 1.1 of Qwen2.5, which no request here asks for and vLLM does not apply."""
        from peft import PeftModel
        from transformers import GenerationConfig

        model = self._model.get_base_model() if isinstance(self._model, PeftModel) else self._model
        kept, model.generation_config = model.generation_config, GenerationConfig()
        try:
            yield
        finally:
            model.generation_config = kept

    def _run(self, prompts: list[array], sampling: Sampling, seed: int, logprobs: bool) -> list[Completion]:
        """Generate one batch: left padding, so that every row's last prompt token is in the last column."""
        import torch
        from transformers import GenerationConfig

        width = max(map(len, prompts))
        pad = self._end_ids[0] if self._tokenizer.pad_token_id is None else self._tokenizer.pad_token_id
        ids_BT = torch.tensor([[pad] * (width - len(p)) + p.tolist() for p in prompts], device=self._device)
        mask_BT = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=self._device)
        limits = [min(sampling.max_tokens, self._max_model_len - len(p)) for p in prompts]
        tracker = FinishTracker(self._tokenizer, prompts, width, limits, self._end_ids, sampling.stop)
        drawn = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
        config = GenerationConfig(
            do_sample=sampling.temperature > 0,
            max_new_tokens=max(limits),
            pad_token_id=pad,
            eos_token_id=self._end_ids,
            output_scores=logprobs,
            return_dict_in_generate=True,
            **(drawn if sampling.temperature > 0 else {}),
        )
        limit: dict[str, Any] = {}
        if sampling.choices:
            chosen = ChoiceLimit(self._tokenizer, sampling.choices, width, self._end_ids[0])
            limit = {"logits_processor": [chosen]}
        devices = [self._device] if self._device.type == "cuda" else []
        try:
            with torch.inference_mode(), torch.random.fork_rng(devices), self._without_defaults():
                torch.manual_seed(seed)
                out = self._model.generate(
                    input_ids=ids_BT,
                    attention_mask=mask_BT,
                    generation_config=config,
                    stopping_criteria=[tracker],
                    **limit,
                )
        except Exception as error:
            raise EngineError(
                f"transformers failed while generating: {type(error).__name__}: {error}"
            ) from error
        new_BT = out.sequences[:, width:]
        values_BT = _sampled_logprobs(out.scores, new_BT) if logprobs else None
        return [
            tracker.completion(
                row, new_BT[row].tolist(), None if values_BT is None else values_BT[row].tolist()
            )
            for row in range(len(prompts))
        ]


def _batches(wanted: list[GenerationRequest], prompts: list[array], size: int) -> Iterator[list[int]]:
    """Indices of requests that can run together, prompts of like length beside each other, longest first."""
    groups: dict[tuple[str, Sampling], list[int]] = {}
    for i, request in enumerate(wanted):
        groups.setdefault((request.adapter, request.sampling), []).append(i)
    for group in groups.values():
        group.sort(key=lambda i: -len(prompts[i]))
        for start in range(0, len(group), size):
            yield group[start : start + size]


def _end_ids(model: Any, tokenizer: Any) -> list[int]:
    """Every token that ends a generation: those of the generation config, else the tokenizer's."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    ends = tokenizer.eos_token_id if ends is None else ends
    ids = [ends] if isinstance(ends, int) else list(ends or [])
    if not ids:
        raise ModelError("the model names no end token; set eos_token_id in its generation_config.json")
    return ids


def _sampled_logprobs(scores: Any, new_BT: Any) -> Any:
    """[B, T] log-probabilities of the tokens of `new_BT` under the processed scores (T tensors of [B, V])."""
    import torch

    columns = [
        torch.log_softmax(score.float(), dim=-1).gather(-1, new_BT[:, t : t + 1])
        for t, score in enumerate(scores)
    ]
    return torch.cat(columns, dim=1)
