"""Log-probabilities of sampled tokens under the model that is trained, with a bounded memory peak.

The logits of a micro-batch of B rows, T tokens and a vocabulary of V take B·T·V floats: with V = 152,000 more than the
model itself. Here the last hidden states go through the output layer in chunks of C tokens, each recomputed in the
backward pass, so that C·V floats are alive at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.errors import ModelError

CHUNK = 1024
"""Tokens whose logits are alive at once: 0.6 GB in float32 for V = 152,000."""


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """`logprobs` and `entropy` float32 [B, T] in nats, `mask` bool [B, T]: true on sampled tokens."""

    logprobs: Any
    entropy: Any
    mask: Any


def token_logprobs(
    model: Any,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    temperature: float = 1.0,
    chunk: int = CHUNK,
    pad_id: int = 0,
) -> TokenLogprobs:
    """log π(completion token | what stands before it), after division of the logits by `temperature`.

    `model` is a causal language model or a PEFT model of one; whichever adapter is active counts. Differentiable in
    its parameters. Raises ModelError where the model has no separate decoder and output layer.
    """
    import torch

    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    decoder, head = causal.get_decoder(), causal.get_output_embeddings()
    if decoder is None or head is None or decoder is causal:
        raise ModelError(f"{type(causal).__name__} has no decoder and output layer of its own")
    device = head.weight.device
    rows = [[*p, *c] for p, c in zip(prompts, completions, strict=True)]
    width, longest = max(map(len, rows)), max(map(len, completions))
    ids_BL = torch.tensor([row + [pad_id] * (width - len(row)) for row in rows], device=device)
    seen_BL = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in rows], device=device)
    hidden_BLD = decoder(input_ids=ids_BL, attention_mask=seen_BL, use_cache=False).last_hidden_state

    lengths_B = torch.tensor([len(c) for c in completions], device=device)
    starts_B = torch.tensor([len(p) for p in prompts], device=device)
    steps_T = torch.arange(longest, device=device)
    mask_BT = steps_T < lengths_B[:, None]
    at_BT = (starts_B[:, None] + steps_T).clamp(max=width - 1)
    targets_BT = ids_BL.gather(1, at_BT)
    before_BT = at_BT - 1  # a token is predicted by the state before it
    hidden_ND = hidden_BLD.gather(1, before_BT[:, :, None].expand(-1, -1, hidden_BLD.size(-1)))[mask_BT]
    values_N, entropy_N = _chunked(hidden_ND, targets_BT[mask_BT], head, temperature, chunk)
    logprobs_BT = torch.zeros(mask_BT.shape, device=device, dtype=torch.float32)
    entropy_BT = torch.zeros_like(logprobs_BT)
    return TokenLogprobs(
        logprobs_BT.masked_scatter(mask_BT, values_N), entropy_BT.masked_scatter(mask_BT, entropy_N), mask_BT
    )


def _chunked(hidden_ND: Any, targets_N: Any, head: Any, temperature: float, chunk: int) -> tuple[Any, Any]:
    import torch
    from torch.utils.checkpoint import checkpoint

    def piece(hidden_CD: Any, targets_C: Any) -> tuple[Any, Any]:
        scores_CV = head(hidden_CD).float() / temperature
        all_CV = scores_CV.log_softmax(-1)
        entropy_C = -(all_CV.exp() * all_CV).sum(-1)
        return all_CV.gather(-1, targets_C[:, None]).squeeze(-1), entropy_C.detach()

    values, entropies = [], []
    for start in range(0, hidden_ND.size(0), chunk):
        part = (hidden_ND[start : start + chunk], targets_N[start : start + chunk])
        value, entropy = (
            checkpoint(piece, *part, use_reentrant=False) if torch.is_grad_enabled() else piece(*part)
        )
        values.append(value)
        entropies.append(entropy)
    return torch.cat(values), torch.cat(entropies)
