"""Log-probabilities by pieces equal the definition, with their gradients, and never hold all logits.

Wrong if a value, an entropy or a gradient differs from log_softmax of all logits, if padding changes a row, or if any
tensor on the way is as large as tokens × vocabulary.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from reasoner.errors import ModelError, TrainingError
from reasoner.onpolicy.logprobs import VOCABULARY_CHUNK, make_batch, plain_logprobs, token_logprobs
from reasoner.onpolicy.samples import Sample


def sample(prompt: int, count: int, seed: int = 0) -> Sample:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, 250, (prompt + count,), generator=draw).tolist()
    return Sample(tuple(ids[:prompt]), tuple(ids[prompt:]), (0.0,) * count, "", "stop", "default", 0)


SAMPLES = [sample(5, 9, 1), sample(11, 3, 2), sample(1, 1, 3)]


@pytest.mark.parametrize("temperature", [1.0, 0.7, 0.0])
def test_values_and_gradients_are_those_of_the_definition(
    policy: Callable[..., Any], temperature: float
) -> None:
    model = policy(std=0.2)
    batch = make_batch(SAMPLES)
    weights_BT = torch.randn(batch.shape, generator=torch.Generator().manual_seed(5)) * batch.mask
    found: dict[str, Any] = {}
    for name, values in (
        ("chunked", token_logprobs(model, batch, temperature=temperature)[0]),
        ("plain", plain_logprobs(model, batch, temperature=temperature)),
    ):
        model.zero_grad()
        (values * weights_BT).sum().backward()
        gradients = {n: p.grad.clone() for n, p in model.named_parameters() if p.requires_grad}
        found[name] = (values.detach(), gradients)
    torch.testing.assert_close(found["chunked"][0], found["plain"][0], atol=2e-5, rtol=1e-5)
    assert (found["plain"][0][batch.mask] < 0).all()
    for name, gradient in found["plain"][1].items():
        assert gradient.abs().max() > 0, name
        torch.testing.assert_close(found["chunked"][1][name], gradient, atol=2e-5, rtol=2e-4)


def test_the_entropy_is_that_of_the_distribution(policy: Callable[..., Any]) -> None:
    model, batch = policy(std=0.2), make_batch(SAMPLES)
    _, entropy_BT = token_logprobs(model, batch, temperature=0.7, entropy=True)
    logits_BLV = model(input_ids=batch.input_ids).logits / 0.7
    expected = torch.distributions.Categorical(logits=logits_BLV).entropy()
    rows, columns = batch.positions[:, 0], batch.positions[:, 1]
    torch.testing.assert_close(entropy_BT[batch.mask], expected[rows, columns - 1], atol=2e-5, rtol=1e-4)


def test_a_row_is_the_same_alone_and_beside_longer_rows(policy: Callable[..., Any]) -> None:
    model = policy(std=0.2)
    together = token_logprobs(model, make_batch(SAMPLES))[0]
    for place, one in enumerate(SAMPLES):
        alone = token_logprobs(model, make_batch([one]))[0]
        count = len(one.token_ids)
        torch.testing.assert_close(together[place, :count], alone[0], atol=1e-5, rtol=1e-5)
        assert (together[place, count:] == 0).all()


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that any operation made."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for one in out if isinstance(out, tuple | list) else (out,):
            if isinstance(one, torch.Tensor):
                self.numel = max(self.numel, one.numel())
        return out


def test_no_tensor_is_as_large_as_all_logits() -> None:
    vocabulary, tokens = 3 * VOCABULARY_CHUNK, 60
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=1,
            num_attention_heads=1,
            num_key_value_heads=1,
            head_dim=16,
            tie_word_embeddings=False,
        )
    )
    model.lm_head.weight.requires_grad_(False)
    batch = make_batch([sample(3, tokens)])
    with Largest() as plain:
        plain_logprobs(model, batch).sum().backward()
    with Largest() as chunked:
        token_logprobs(model, batch)[0].sum().backward()
    assert plain.numel >= tokens * vocabulary
    assert chunked.numel <= max(tokens * VOCABULARY_CHUNK, vocabulary * 16) < tokens * vocabulary


def test_a_head_that_is_not_plain_is_refused(tiny: Path, policy: Callable[..., Any]) -> None:
    model = policy()
    model.get_base_model().config.logits_scaling = 8.0
    with pytest.raises(ModelError, match="logits_scaling"):
        token_logprobs(model, make_batch(SAMPLES))


def test_a_sample_without_tokens_is_refused() -> None:
    with pytest.raises(TrainingError, match="without prompt tokens"):
        make_batch([Sample((), (1,), (0.0,), "", "stop")])
