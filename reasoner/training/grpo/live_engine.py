"""The trainer's own model as an engine: it samples with the adapter that is being trained, and as worker without it.

For a 4-bit base, of which there shall be one copy. transformers generates, so it is slower than vLLM (METHODS
1.3.2 says why vLLM and NF4 do not go together). Nothing is loaded or sent: the weights are always the present
ones.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.transformers_engine import TransformersEngine, _end_ids
from reasoner.onpolicy.trl_rollout import POLICY
from reasoner.records import Completion, GenerationRequest


class LiveEngine(TransformersEngine):
    """An engine on a PEFT model that somebody else owns and trains."""

    def __init__(
        self, model: Any, tokenizer: Any, max_model_len: int, *, batch_size: int = 16, bf16: bool = False
    ) -> None:
        """With `bf16` it generates under bfloat16 autocast, as the trainer computes."""
        self.settings = EngineSettings("transformers", Path(), adapters=True)
        self._model, self._tokenizer, self._max_model_len = model, tokenizer, max_model_len
        self._batch_size, self._bf16 = batch_size, bf16
        self._device = next(model.parameters()).device
        self._end_ids = _end_ids(model.get_base_model(), tokenizer)
        self._adapters = {POLICY: "default"}
        self._adapter_ids = itertools.count(1)

    def load_adapter(self, name: str, path: Path) -> None:
        """Nothing to do: the adapter is part of the model."""

    def generate(
        self, requests: Iterable[GenerationRequest], *, logprobs: bool = False
    ) -> Iterator[tuple[int, Completion]]:
        """As TransformersEngine.generate, with dropout and checkpointing off; all of it before the first is
        yielded."""
        with self._for_generation():
            done = list(super().generate(requests, logprobs=logprobs))
        yield from done

    def close(self) -> None:
        """Let the model go; it stays its owner's."""
        self._model = None

    @contextlib.contextmanager
    def _for_generation(self) -> Iterator[None]:
        import torch
        from trl.models.utils import disable_gradient_checkpointing

        model, training = self._model, self._model.training
        model.eval()
        try:
            with (
                disable_gradient_checkpointing(model, None),
                torch.autocast(self._device.type, torch.bfloat16, enabled=self._bf16),
            ):
                yield
        finally:
            model.train(training)
