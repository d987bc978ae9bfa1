"""One base under two LoRA adapters, `solver` and `feedback`; the reference is the base with its adapters off.

Computes log-probabilities of stored token ids (never of text) and last hidden states. Rows are padded on both sides of
the border between prompt and completion, so that logits are made for completions only. The adapters' weights are
float32; bfloat16 is autocast (see `training.trainer`).
"""

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from reasoner.config.smart import LoraConfig
from reasoner.training import runtime
from reasoner.training.adapter import CONFIG, WEIGHTS
from reasoner.training.checkpoints import write_json
from reasoner.training.trainer import present_modules

Ids = Sequence[int]


@dataclass(frozen=True)
class Scores:
    """Of a batch of completions: log-probabilities and mask [B, T]."""

    logp: Any
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
        self._model: Any = get_peft_model(model, config, adapter_name=adapters[0])
        for name in adapters[1:]:
            self._model.add_adapter(name, config)
        self._model.to(device)
        self.adapters, self.device = tuple(adapters), device
        self._base_name, self._autocast = base_name, autocast
        text_config = model.config.get_text_config()
        self.hidden_size = int(text_config.hidden_size)
        pad = model.config.pad_token_id
        self._pad = int(pad) if isinstance(pad, int) and pad >= 0 else 0
        self._model.eval()

    def parameters(self, adapter: str) -> list[Any]:
        """The trainable tensors of one adapter, in a fixed order."""
        named = sorted(self._model.named_parameters(), key=lambda item: item[0])
        return [p for name, p in named if f".{adapter}." in name and "lora_" in name]

    @contextlib.contextmanager
    def speaking(self, adapter: str | None, train: bool = False) -> Iterator[None]:
        """Compute as one adapter, or as the reference (None). `train` turns LoRA's dropout on."""
        if adapter is None:
            with self._model.disable_adapter():
                yield
            return
        self._model.set_adapter(adapter)
        self._model.train(train)
        try:
            yield
        finally:
            self._model.eval()

    def logprobs(self, rows: Sequence[tuple[Ids, Ids]], temperature: float) -> Scores:
        """Log-probabilities of each row's completion after its prompt, under logits divided by the temperature."""
        import torch

        ids_BL, attended_BL, mask_BT = self._padded(rows)
        width = mask_BT.shape[1]
        with self._autocast():
            logits_BTV = self._model(
                input_ids=ids_BL, attention_mask=attended_BL, position_ids=positions(attended_BL), use_cache=False,
                logits_to_keep=width + 1,
            ).logits[:, :-1]  # fmt: skip
        targets_BT = ids_BL[:, -width:]
        kept = []
        for logits_TV, target_T in zip(
            logits_BTV, targets_BT, strict=True
        ):  # a row at a time: float32 logits are big
            scaled_TV = logits_TV.float() / temperature
            picked_T = scaled_TV.gather(-1, target_T.unsqueeze(-1)).squeeze(-1)
            kept.append(picked_T - scaled_TV.logsumexp(-1))
        return Scores(torch.stack(kept) * mask_BT, mask_BT)

    def hidden(self, rows: Sequence[Ids], at: Sequence[Sequence[int]]) -> Any:
        """[B, K, H]: the last hidden state (after the final norm) of each row at its K positions, in float32."""
        import torch

        width = max(len(row) for row in rows)
        ids_BL = torch.tensor([[*row, *[self._pad] * (width - len(row))] for row in rows], device=self.device)
        attended = [[1] * len(row) + [0] * (width - len(row)) for row in rows]
        attended_BL = torch.tensor(attended, device=self.device)
        inner = self._model.get_base_model().base_model
        with self._autocast():
            states_BLH = inner(
                input_ids=ids_BL,
                attention_mask=attended_BL,
                position_ids=positions(attended_BL),
                use_cache=False,
            ).last_hidden_state
        at_BK = torch.tensor([list(row) for row in at], device=self.device)
        return states_BLH.gather(1, at_BK.unsqueeze(-1).expand(-1, -1, states_BLH.shape[-1])).float()

    def save(self, adapter: str, folder: Path) -> None:
        """The adapter in PEFT's layout, as engines load it."""
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        state = get_peft_model_state_dict(self._model, adapter_name=adapter)
        tensors = {name: cast(Any, t).detach().cpu().contiguous() for name, t in state.items()}
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        # Equal weights are equal bytes: PEFT keeps the modules in a set, whose order differs between processes.
        self._model.peft_config[adapter].save_pretrained(folder)
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
        set_peft_model_state_dict(self._model, state, adapter_name=adapter)

    def _padded(self, rows: Sequence[tuple[Ids, Ids]]) -> tuple[Any, Any, Any]:
        """Ids and attention [B, L], the completions' mask [B, T]: all prompts end at one column."""
        import torch

        before, after = max(len(p) for p, _ in rows), max(len(c) for _, c in rows)
        ids, attended = [], []
        for prompt, completion in rows:
            left, right = before - len(prompt), after - len(completion)
            ids.append([*[self._pad] * left, *prompt, *completion, *[self._pad] * right])
            attended.append([0] * left + [1] * (len(prompt) + len(completion)) + [0] * right)
        mask = [[1.0] * len(c) + [0.0] * (after - len(c)) for _, c in rows]
        return (
            torch.tensor(ids, device=self.device),
            torch.tensor(attended, device=self.device),
            torch.tensor(mask, device=self.device),
        )


def positions(attended_BL: Any) -> Any:
    """Positions that count from 0 at each row's first token; padding has position 0."""
    return (attended_BL.cumsum(-1) - 1).clamp(min=0)
