"""Chunked log-probabilities against the plain ones: values, gradients, temperature, and how much is alive at once."""

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import LlamaConfig, LlamaForCausalLM

from reasoner.errors import ModelError, TrainingError
from reasoner.onpolicy.logprobs import VOCABULARY_CHUNK, make_batch, plain_logprobs, token_logprobs
from tests.unit.onpolicy.conftest import move

PROMPTS = [[0, 5, 6, 7], [0, 9], [0, 11, 12, 13, 14, 15]]
COMPLETIONS = [[20, 21, 22], [30, 31, 32, 33, 34], [40]]


def plain(model: Any, temperature: float) -> list[Any]:
    """One row at a time, no padding, the whole vocabulary: the definition."""
    rows = []
    for prompt, completion in zip(PROMPTS, COMPLETIONS, strict=True):
        logits = model(input_ids=torch.tensor([prompt + completion])).logits[0].float() / temperature
        at = logits.log_softmax(-1)[len(prompt) - 1 : -1]
        rows.append(at.gather(-1, torch.tensor(completion)[:, None]).squeeze(-1))
    return rows


def gradients(policy: Any, loss: Any) -> dict[str, Any]:
    policy.zero_grad()
    loss.backward()
    return {n: p.grad.clone() for n, p in policy.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("chunk", [7, 100, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_values_and_gradients_are_those_of_the_definition(
    policy: Any, chunk: int, temperature: float
) -> None:
    move(policy, seed=1, scale=0.1)
    found = token_logprobs(policy, PROMPTS, COMPLETIONS, temperature=temperature, chunk=chunk)
    wanted = plain(policy, temperature)
    for row, expected in enumerate(wanted):
        torch.testing.assert_close(found.logprobs[row][found.mask[row]], expected, atol=1e-5, rtol=1e-5)
    assert found.mask.sum(1).tolist() == [3, 5, 1]
    assert not found.logprobs[~found.mask].any()
    weights = torch.linspace(0.5, 2.0, 9)
    ours = gradients(policy, (found.logprobs[found.mask] * weights).sum())
    theirs = gradients(policy, (torch.cat(wanted) * weights).sum())
    assert ours.keys() == theirs.keys() and ours
    for name, gradient in theirs.items():
        torch.testing.assert_close(ours[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


def test_entropy_is_that_of_the_distribution(policy: Any) -> None:
    found = token_logprobs(policy, [[0, 5]], [[20]])
    at = policy(input_ids=torch.tensor([[0, 5]])).logits[0, -1].float().log_softmax(-1)
    torch.testing.assert_close(found.entropy[0, 0], -(at.exp() * at).sum(), atol=1e-5, rtol=1e-5)


def test_a_row_is_the_same_alone_and_beside_longer_rows(policy: Any) -> None:
    move(policy, seed=1, scale=0.1)
    together = token_logprobs(policy, PROMPTS, COMPLETIONS)
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        alone = token_logprobs(policy, [prompt], [completion])
        torch.testing.assert_close(
            together.logprobs[row, : len(completion)], alone.logprobs[0], atol=1e-5, rtol=1e-5
        )


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
    vocabulary, tokens, width = 3 * VOCABULARY_CHUNK, 60, 16
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=vocabulary, hidden_size=width, intermediate_size=width, num_hidden_layers=1,
            num_attention_heads=1, num_key_value_heads=1, head_dim=width, tie_word_embeddings=False,
        )
    )  # fmt: skip
    model.lm_head.weight.requires_grad_(False)
    prompts, completions = [[5, 6, 7]], [list(range(10, 10 + tokens))]
    batch = make_batch(prompts, completions)
    with Largest() as whole:
        plain_logprobs(model, batch).sum().backward()
    with Largest() as chunked:
        token_logprobs(model, prompts, completions).logprobs.sum().backward()
    assert whole.numel >= tokens * vocabulary
    assert chunked.numel <= max(tokens * VOCABULARY_CHUNK, vocabulary * width) < tokens * vocabulary


def test_greedy_samples_count_with_the_plain_softmax(policy: Any) -> None:
    greedy = token_logprobs(policy, PROMPTS, COMPLETIONS, temperature=0.0).logprobs
    assert torch.equal(greedy, token_logprobs(policy, PROMPTS, COMPLETIONS).logprobs)


def test_the_two_definitions_agree(policy: Any) -> None:
    move(policy, seed=1, scale=0.1)
    found = plain_logprobs(policy, make_batch(PROMPTS, COMPLETIONS), temperature=0.7)
    for row, expected in enumerate(plain(policy, 0.7)):
        torch.testing.assert_close(found[row, : len(expected)], expected, atol=1e-5, rtol=1e-5)


def test_a_head_that_is_not_plain_is_refused(policy: Any) -> None:
    policy.get_base_model().config.logits_scaling = 8.0
    with pytest.raises(ModelError, match="logits_scaling"):
        token_logprobs(policy, PROMPTS, COMPLETIONS)


def test_rows_that_can_not_be_scored_are_refused(policy: Any) -> None:
    with pytest.raises(TrainingError, match="without prompt tokens"):
        token_logprobs(policy, [[], [1]], [[2], [3]])
    assert token_logprobs(policy, [[1], [1]], [[], [3]]).mask.tolist() == [[False], [True]]
