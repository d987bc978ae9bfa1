"""One base under two LoRA adapters, `solver` and `feedback`; the reference is the base with its adapters off.

Computes log-probabilities of stored token ids (never of text) and last hidden states. The adapters' weights are
float32; bfloat16 is autocast (see `training.trainer`).
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from reasoner.config.smart import LoraConfig
from reasoner.onpolicy.memory import MicroBatches
from reasoner.training import runtime
from reasoner.training.adapter import CONFIG, WEIGHTS
from reasoner.training.checkpoints import write_json
from reasoner.training.multiturn.batching import longest_first
from reasoner.training.trainer import present_modules

Ids = Sequence[int]


@dataclass(frozen=True)
class Scores:
    """Of a batch of completions, float32 [B, T]: log-probabilities, entropies without gradient, mask."""

    logp: Any
    entropy: Any
    mask: Any


class Policy:
    """The two policies and their reference. `autocast` is a context manager of the accelerator."""

    def __init__(
        self, base: Path, base_name: str, lora: LoraConfig, adapters: Sequence[str], *, device: Any, dtype: str,
        seed: int, autocast: Any = contextlib.nullcontext, gradient_checkpointing: bool = False,
    ) -> None:  # fmt: skip
        """Load the base and make fresh adapters, which change nothing yet. Raises ModelError."""
        import torch
        from peft import LoraConfig as PeftLora
        from peft import get_peft_model

        model = runtime.load_model(base, dtype)
        if gradient_checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            model.enable_input_require_grads()
        config = PeftLora(
            r=lora.r, lora_alpha=lora.alpha, lora_dropout=lora.dropout, bias="none", task_type="CAUSAL_LM",
            target_modules=present_modules(model, lora.modules),
        )  # fmt: skip
        torch.manual_seed(seed)
        self.model: Any = get_peft_model(model, config, adapter_name=adapters[0])
        for name in adapters[1:]:
            self.model.add_adapter(name, config)
        self.model.to(device)
        self.adapters, self.device = tuple(adapters), device
        self._base_name, self._autocast = base_name, autocast
        text_config = model.config.get_text_config()
        self.hidden_size = int(text_config.hidden_size)
        pad = model.config.pad_token_id
        self._pad = int(pad) if isinstance(pad, int) and pad >= 0 else 0
        self.model.eval()

    def parameters(self, adapter: str) -> list[Any]:
        """The trainable tensors of one adapter, in a fixed order."""
        named = sorted(self.model.named_parameters(), key=lambda item: item[0])
        return [p for name, p in named if f".{adapter}." in name and "lora_" in name]

    @contextlib.contextmanager
    def speaking(self, adapter: str | None, train: bool = False, dropout: bool = True) -> Iterator[None]:
        """Compute as one adapter, or as the reference (None). `train` turns gradient checkpointing and LoRA's dropout
        on, the latter unless `dropout` is false."""
        if adapter is None:
            with self.model.disable_adapter():
                yield
            return
        self.model.set_adapter(adapter)
        self.model.train(train)
        if not dropout:
            self._dropout_off()
        try:
            yield
        finally:
            self.model.eval()

    def _dropout_off(self) -> None:
        import torch

        for module in self.model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.eval()

    def logprobs(self, rows: Sequence[tuple[Ids, Ids]], temperature: float) -> Scores:
        """Log-probabilities of each row's completion after its prompt, under logits divided by the temperature."""
        from reasoner.onpolicy.logprobs import token_logprobs

        prompts, completions = [p for p, _ in rows], [c for _, c in rows]
        with self._autocast():
            found = token_logprobs(
                self.model, prompts, completions, temperature=temperature, pad_id=self._pad
            )
        return Scores(found.logprobs, found.entropy, found.mask.float())

    def hidden(self, rows: Sequence[Ids], at: Sequence[Sequence[int]]) -> Any:
        """[B, K, H]: the last hidden state (after the final norm) of each row at its K positions, in float32.

        Padding stands on the right, where causal attention hides it, so no mask is given (as in `token_logprobs`).
        """
        import torch

        width = max(len(row) for row in rows)
        ids_BL = torch.tensor([[*row, *[self._pad] * (width - len(row))] for row in rows], device=self.device)
        inner = self.model.get_base_model().base_model
        with self._autocast():
            states_BLH = inner(input_ids=ids_BL, use_cache=False).last_hidden_state
        at_BK = torch.tensor([list(row) for row in at], device=self.device)
        return states_BLH.gather(1, at_BK.unsqueeze(-1).expand(-1, -1, states_BLH.shape[-1])).float()

    def states(self, adapter: str | None, rows: Sequence[tuple[Ids, Ids]], micro: MicroBatches) -> list[Any]:
        """[K, H] each, without a gradient: `hidden` of many (row, positions), in micro-batches."""
        import torch

        lengths = [len(ids) for ids, _ in rows]
        order = longest_first(range(len(rows)), lengths)

        def compute(piece: Sequence[int], _: float) -> Any:
            return self.hidden([rows[i][0] for i in piece], [rows[i][1] for i in piece])

        with torch.no_grad(), self.speaking(adapter):
            done = micro.accumulate(order, lengths, compute, lambda: None, gradient=False)
        found = dict(zip(order, (row for part in done for row in part), strict=True))
        return [found[i] for i in range(len(rows))]

    def save(self, adapter: str, folder: Path) -> None:
        """The adapter in PEFT's layout, as engines load it."""
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        state = get_peft_model_state_dict(self.model, adapter_name=adapter)
        tensors = {name: cast(Any, t).detach().cpu().contiguous() for name, t in state.items()}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        # Equal weights are equal bytes: PEFT keeps the modules in a set, whose order differs between processes.
        self.model.peft_config[adapter].save_pretrained(folder)
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        config |= {"base_model_name_or_path": self._base_name, "inference_mode": True}
        for key in ("target_modules", "exclude_modules", "modules_to_save"):
            if isinstance(config.get(key), list):
                config[key] = sorted(config[key])
        write_json(folder / CONFIG, config)

    def load(self, adapter: str, folder: Path) -> None:
        """Take an adapter's weights from a folder that `save` wrote."""
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        state = load_file(folder / WEIGHTS, device="cpu")
        set_peft_model_state_dict(self.model, state, adapter_name=adapter)
