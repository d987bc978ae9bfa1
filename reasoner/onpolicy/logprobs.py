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
from reasoner.onpolicy.samples import Sample

VOCABULARY_CHUNK = 32768
"""Columns of one tile of logits."""
SCALED = ("logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")


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


def make_batch(samples: Sequence[Sample], device: Any = "cpu") -> TokenBatch:
    """The tensors of some samples. Raises TrainingError for one without a prompt or without tokens."""
    import torch

    for sample in samples:
        if not sample.prompt_ids or not sample.token_ids:
            raise TrainingError("a sample without prompt tokens or completion tokens can't be trained on")
    width = max(len(s.prompt_ids) + len(s.token_ids) for s in samples)
    longest = max(len(s.token_ids) for s in samples)
    ids = torch.zeros(len(samples), width, dtype=torch.long)
    mask = torch.zeros(len(samples), longest, dtype=torch.bool)
    for row, sample in enumerate(samples):
        whole = (*sample.prompt_ids, *sample.token_ids)
        ids[row, : len(whole)] = torch.tensor(whole)
        mask[row, : len(sample.token_ids)] = True
    places = mask.nonzero()
    starts = torch.tensor([len(s.prompt_ids) for s in samples])
    positions = torch.stack([places[:, 0], places[:, 1] + starts[places[:, 0]]], dim=1)
    return TokenBatch(ids.to(device), positions.to(device), places.to(device), mask.to(device))


def token_logprobs(
    model: Any, batch: TokenBatch, *, temperature: float = 1.0, entropy: bool = False
) -> tuple[Any, Any]:
    """([B, T] log-probabilities, [B, T] entropies or None), float32, in nats, with gradient where it is on.

    `model` is a causal language model of transformers, or a PEFT model of one; its active adapters count.
    Raises ModelError for a head that this can't do.
    """
    from trl.kernels import ChunkedLogProbFunction

    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
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
        VOCABULARY_CHUNK,
        softcap,
        1.0,
        ("entropy",) if entropy else (),
    )
    return batch.spread(values_N), batch.spread(entropy_N) if entropy else None


def plain_logprobs(model: Any, batch: TokenBatch, *, temperature: float = 1.0) -> Any:
    """[B, T] by the definition: the log-softmax of all logits. For small vocabularies and tests."""
    import torch

    logits_BLV = model(input_ids=batch.input_ids, use_cache=False).logits.float() / _divisor(temperature)
    all_BLV = torch.log_softmax(logits_BLV, dim=-1)
    rows, columns = batch.positions[:, 0], batch.positions[:, 1]
    return batch.spread(all_BLV[rows, columns - 1, batch.input_ids[rows, columns]])


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
