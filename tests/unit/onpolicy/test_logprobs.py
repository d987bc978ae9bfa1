"""Chunked log-probabilities against the plain ones: values, gradients, temperature, and how much is alive at once."""

from typing import Any

import pytest
import torch

from reasoner.onpolicy.logprobs import token_logprobs
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


@pytest.mark.parametrize("chunk", [1, 2, 1000])
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


def test_no_more_logits_than_a_chunk_are_made_at_once(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    head, seen = policy.get_base_model().get_output_embeddings(), []
    inner = head.forward
    monkeypatch.setattr(head, "forward", lambda x: seen.append(x.shape[0]) or inner(x))
    token_logprobs(policy, PROMPTS, COMPLETIONS, chunk=4).logprobs.sum().backward()
    assert max(seen) == 4 and sum(seen) == 2 * 9, "each chunk once forward, once again for its gradient"
