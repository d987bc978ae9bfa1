"""Log-probabilities of completion tokens, without a [B, T, V] tensor of logits.

The hidden states of completion tokens go through TRL's chunked head (`ChunkedLogProbFunction`: online log-sum-exp
over tiles of the vocabulary, recomputed in the backward pass), so that memory holds one tile of logits and not all of
them: 64 completions of 260 tokens on a vocabulary of 152 k would take 9.4 GiB in float32, twice with their gradient.
`plain_logprobs` is the definition that it is checked against.

Rows are padded on the right and go without an attention mask: with causal attention a padding token is seen by no
real one, and attention without a mask has the faster kernels.

Not covered: an adapter on the head, heads that scale their logits (refused), sequence parallelism.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.errors import ModelError, TrainingError

VOCABULARY_CHUNK = 32768
"""Columns of one tile of logits."""
SCALED = ("logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """`logprobs` and `entropy` float32 [B, T] in nats, `mask` bool [B, T]: true on sampled tokens."""

    logprobs: Any
    entropy: Any
    mask: Any


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Rows of prompt and completion, padded on the right.

    `input_ids` [B, L]; `positions` [N, 2] is (row, column) of every completion token in `input_ids`; `places` [N, 2]
    the same tokens' (row, t) in a [B, T] tensor whose mask is `mask`.
    """

    input_ids: Any
    positions: Any
    places: Any
    mask: Any

    @property
    def shape(self) -> tuple[int, int]:
        rows, width = self.mask.shape
        return int(rows), int(width)

    def spread(self, values_N: Any) -> Any:
        """[N] values of the completion tokens as [B, T], 0 elsewhere; keeps the gradient."""
        out = values_N.new_zeros(self.mask.shape)
        return out.index_put((self.places[:, 0], self.places[:, 1]), values_N)


def token_logprobs(
    model: Any,
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    *,
    temperature: float = 1.0,
    chunk: int = VOCABULARY_CHUNK,
    pad_id: int = 0,
) -> TokenLogprobs:
    """log π(completion token | what stands before it), after division of the logits by `temperature`.

    `model` is a causal language model or a PEFT model of one; whichever adapter is active counts. Log-probabilities
    are differentiable in its parameters, entropies are not. `chunk` is the number of vocabulary entries whose logits
    are alive at once. Raises ModelError for a head that this can't do, TrainingError for an empty prompt or completion.
    """
    batch = make_batch(prompts, completions, _causal(model).get_output_embeddings().weight.device, pad_id)
    logprobs_BT, entropy_BT = batch_logprobs(model, batch, temperature=temperature, chunk=chunk, entropy=True)
    return TokenLogprobs(logprobs_BT, entropy_BT, batch.mask)


def make_batch(
    prompts: Sequence[Sequence[int]],
    completions: Sequence[Sequence[int]],
    device: Any = "cpu",
    pad_id: int = 0,
) -> TokenBatch:
    """The tensors of some rows. Raises TrainingError for one without a prompt, or where no row has a token."""
    import torch

    if not all(prompts) or not any(completions):
        raise TrainingError(
            "a row without prompt tokens, or rows without any completion token, can't be scored"
        )
    rows = [[*prompt, *completion] for prompt, completion in zip(prompts, completions, strict=True)]
    width, longest = max(map(len, rows)), max(map(len, completions))
    ids_BL = torch.tensor([row + [pad_id] * (width - len(row)) for row in rows])
    lengths_B = torch.tensor([len(completion) for completion in completions])
    starts_B = torch.tensor([len(prompt) for prompt in prompts])
    mask_BT = torch.arange(longest) < lengths_B[:, None]
    places_N2 = mask_BT.nonzero()
    positions_N2 = torch.stack([places_N2[:, 0], places_N2[:, 1] + starts_B[places_N2[:, 0]]], dim=1)
    return TokenBatch(*(tensor.to(device) for tensor in (ids_BL, positions_N2, places_N2, mask_BT)))


def batch_logprobs(
    model: Any,
    batch: TokenBatch,
    *,
    temperature: float = 1.0,
    chunk: int = VOCABULARY_CHUNK,
    entropy: bool = False,
) -> tuple[Any, Any]:
    """[B, T] log-probabilities and [B, T] entropies (or None), as in `token_logprobs`."""
    from trl.kernels import ChunkedLogProbFunction

    causal = _causal(model)
    head, softcap = _head(causal)
    backbone = getattr(causal, causal.base_model_prefix)
    hidden_BLH = backbone(input_ids=batch.input_ids, use_cache=False).last_hidden_state
    rows, columns = batch.positions[:, 0], batch.positions[:, 1]
    # The state before a token predicts it.
    values_N, entropy_N, *_ = ChunkedLogProbFunction.apply(
        hidden_BLH[rows, columns - 1],
        head.weight,
        head.bias,
        batch.input_ids[rows, columns],
        _divisor(temperature),
        chunk,
        softcap,
        1.0,
        ("entropy",) if entropy else (),
    )
    return batch.spread(values_N), batch.spread(entropy_N.detach()) if entropy else None


def plain_logprobs(model: Any, batch: TokenBatch, *, temperature: float = 1.0) -> Any:
    """[B, T] by the definition: the log-softmax of all logits. For small vocabularies and tests."""
    import torch

    logits_BLV = model(input_ids=batch.input_ids, use_cache=False).logits.float() / _divisor(temperature)
    all_BLV = torch.log_softmax(logits_BLV, dim=-1)
    rows, columns = batch.positions[:, 0], batch.positions[:, 1]
    return batch.spread(all_BLV[rows, columns - 1, batch.input_ids[rows, columns]])


def _causal(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _divisor(temperature: float) -> float:
    """What logits are divided by; greedy samples count with the plain softmax, as the engines report them."""
    return temperature if temperature > 0 else 1.0


def _head(causal: Any) -> tuple[Any, float | None]:
    """The output layer and its soft cap. Raises ModelError for an adapter on it or scaled logits."""
    config = causal.config.get_text_config()
    scaled = [name for name in SCALED if getattr(config, name, None) not in (None, 1.0)]
    if scaled:
        raise ModelError(f"{config.model_type} scales its logits ({scaled[0]}), which is not supported here")
    head = causal.get_output_embeddings()
    if head is None or hasattr(head, "base_layer"):
        raise ModelError("the model has no plain output layer; an adapter on lm_head is not supported here")
    return head, getattr(config, "final_logit_softcapping", None)
