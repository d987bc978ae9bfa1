"""Packing: the records of a micro-batch laid end to end in one row without padding, where a kernel can do it.

A packed row needs attention that keeps its records apart: a variable-length kernel. Covers: which kernel this
machine has (flash-attn through transformers, or `torch.nn.attention.varlen`), the latter's place among
transformers' attention functions, and a proof at the start of each packed training that no record sees another.
Packing changes neither the records of a step nor their order, so its losses are those of padding up to rounding.

Not covered: joining records of several micro-batches, models with attention of another kind (soft-capped scores,
sinks, recurrent layers), for which padding is used.
"""

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from reasoner.errors import InfrastructureError, TrainingError

TORCH_VARLEN = "torch_varlen"
"""The name under which torch's own kernel is known to transformers here."""
FLASH = "flash_attention_2"
PADDED = "sdpa"
MAX_HEAD = 256
"""Largest head dimension of the kernels."""

Kernel = Callable[..., Any]


@dataclass(frozen=True)
class Attention:
    """How a training attends: transformers' name of the function, and whether micro-batches are packed."""

    name: str
    packed: bool


def choose(
    mode: Literal["auto", "on", "off"],
    device: str,
    precision: str,
    base: Mapping[str, Any],
    log: Callable[[str], None],
) -> Attention:
    """The attention for `train.packing=mode`; `base` is the base's config.json.

    Raises `InfrastructureError` naming what is missing when packing is `on` and can't be done.
    """
    if mode == "off":
        return Attention(PADDED, packed=False)
    missing = obstacles(device, precision, base)
    if not missing:
        name = kernel_name()
        assert name is not None
        if name == TORCH_VARLEN:
            register(TORCH_VARLEN, torch_kernel())
        fault = leak(name, device, head_dimension(base))
        if fault is None:
            return Attention(name, packed=True)
        missing = [f"{name} failed its check: {fault}"]
    if mode == "on":
        raise InfrastructureError(
            f"train.packing=on needs variable-length attention: {'; '.join(missing)}. "
            "With train.packing=auto records of like length are padded instead"
        )
    log(f"no packing ({'; '.join(missing)}): padded batches of like length")
    return Attention(PADDED, packed=False)


def obstacles(device: str, precision: str, base: Mapping[str, Any]) -> list[str]:
    """What stands against packing on this machine and with this base, each in a few words; empty if nothing."""
    found = []
    if device != "cuda":
        found.append("no CUDA device")
    else:
        import torch

        if torch.cuda.get_device_capability() < (8, 0):
            found.append(f"{torch.cuda.get_device_name()} is older than compute capability 8.0")
    if kernel_name() is None:
        found.append("neither flash-attn nor torch.nn.attention.varlen (torch 2.10, CUDA build) is installed")
    if precision != "bf16":
        found.append(f"the kernels compute in bf16, train.precision is {precision}")
    if base.get("attn_logit_softcapping"):
        found.append("the model caps its attention scores")
    if base.get("attention_dropout"):
        found.append("the model drops attention weights")
    if any(kind not in ("full_attention", "sliding_attention") for kind in base.get("layer_types") or []):
        found.append("the model has layers other than attention")
    if head_dimension(base) > MAX_HEAD:
        found.append(f"heads of {head_dimension(base)} are larger than {MAX_HEAD}")
    return found


def head_dimension(base: Mapping[str, Any]) -> int:
    """Size of an attention head, from a config.json."""
    heads = base.get("num_attention_heads") or 1
    return int(base.get("head_dim") or (base.get("hidden_size") or 64) // heads)


def kernel_name() -> str | None:
    """The variable-length attention that is installed, flash-attn before torch's own; None without one."""
    from transformers.utils import is_flash_attn_2_available

    if is_flash_attn_2_available():
        return FLASH
    import torch

    there = importlib.util.find_spec("torch.nn.attention.varlen") is not None
    return TORCH_VARLEN if there and torch.backends.cuda.is_flash_attention_available() else None


def torch_kernel() -> Kernel:
    """`kernel(q, k, v, starts, longest, scale, window)` of torch: q [T, H, D], k and v [T, H_kv, D] → [T, H, D].

    Attention is causal; `starts` [N + 1] are int32 offsets of the records. The arguments of torch's function
    changed between 2.10 (`is_causal`, equal head counts, no scale) and 2.12.
    """
    from torch.nn.attention.varlen import varlen_attn

    known = inspect.signature(varlen_attn).parameters

    def kernel(q: Any, k: Any, v: Any, starts: Any, longest: int, scale: float, window: int | None) -> Any:
        options: dict[str, Any] = {}
        if "window_size" in known:
            options["window_size"] = (-1 if window is None else window - 1, 0)
        elif window is not None and window < longest:
            raise TrainingError("this torch has no sliding window in packed rows; set train.packing=off")
        else:
            options["is_causal"] = True
        if "scale" in known:
            options["scale"] = scale
        else:
            q = q * (scale * q.shape[-1] ** 0.5)
        if k.shape[1] != q.shape[1]:
            if "enable_gqa" in known:
                options["enable_gqa"] = True
            else:
                k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        return varlen_attn(q, k, v, starts, starts, longest, longest, **options)

    return kernel


def register(name: str, kernel: Kernel) -> None:
    """Make `kernel` an attention function of transformers, `attn_implementation=name`, for packed rows only."""
    import torch
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

    def attend(
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any,
        *,
        scaling: float | None = None,
        dropout: float = 0.0,
        sliding_window: int | None = None,
        cu_seq_lens_q: Any = None,
        max_length_q: Any = None,
        **options: Any,
    ) -> tuple[Any, None]:
        """Transformers' contract: query [1, H, T, D] → output [1, T, H, D] and no attention weights."""
        if cu_seq_lens_q is None or query.shape[0] != 1 or attention_mask is not None:
            raise TrainingError(f"{name} attends to packed rows only; this batch is padded")
        if dropout or options.get("softcap") or options.get("s_aux") is not None:
            raise TrainingError(f"{name} knows no dropout, soft caps or sinks; set train.packing=off")
        dtype = torch.bfloat16 if query.dtype == torch.float32 and query.is_cuda else query.dtype
        q, k, v = (x[0].transpose(0, 1).to(dtype).contiguous() for x in (query, key, value))
        scale = q.shape[-1] ** -0.5 if scaling is None else scaling
        out = kernel(q, k, v, cu_seq_lens_q, int(max_length_q), scale, sliding_window)
        return out[None].to(query.dtype), None

    AttentionInterface.register(name, attend)
    # Packed rows have no mask; a padded batch gets one, and `attend` refuses it.
    AttentionMaskInterface.register(name, ALL_MASK_ATTENTION_FUNCTIONS["flash_attention_2"])


def leak(name: str, device: str, head: int) -> str | None:
    """Whether attention `name` lets one packed record see another, in a tiny random model; None if it does not.

    Two records in a row must give the logits that each gives alone, to bfloat16's precision, exchanging the
    first must leave the second's as they were, and gradients must be finite.
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=head, initializer_range=0.2,
    )  # fmt: skip
    config._attn_implementation = name
    collate = DataCollatorForLanguageModeling(pad_token_id=0, padding_free=True)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    tolerance = 0.1 if device == "cuda" else 1e-4
    one, other, second = [3, 4, 5, 6, 7], [13, 14, 15, 16, 17], [8, 9, 10, 11, 12, 13, 14]
    try:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model: Any = LlamaForCausalLM(config)
            model = model.to(device, dtype)

        def logits(*records: list[int]) -> Any:
            batch = collate([{"input_ids": ids} for ids in records])
            batch.pop("labels")
            batch.pop("seq_idx", None)
            inputs = {k: v.to(device) if torch.is_tensor(v) else v for k, v in batch.items()}
            return model(**inputs, use_cache=False).logits[0].float()

        row = logits(one, second)
        row.square().mean().backward()
        with torch.no_grad():
            apart = torch.cat([logits(one), logits(second)])
            exchanged = logits(other, second)
        row = row.detach()
    except (RuntimeError, ValueError, ImportError, TypeError, NotImplementedError) as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    if float((row - apart).abs().max()) > tolerance * max(1.0, float(apart.abs().max())):
        return "packed records do not attend as they do alone"
    if not torch.equal(row[len(one) :], exchanged[len(one) :]):
        return "a packed record sees the one before it"
    if not all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None):
        return "its gradients are not finite"
    return None
