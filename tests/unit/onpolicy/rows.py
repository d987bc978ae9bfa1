"""Rows as a policy would have sampled them, without an engine."""

from collections.abc import Sequence
from typing import Any

import torch

from reasoner.onpolicy.logprobs import TokenBatch, make_batch, plain_logprobs
from reasoner.onpolicy.rows import Row
from reasoner.onpolicy.sampler import Sample
from reasoner.records import GenerationRequest, Sampling


def make_sample(
    prompt: Sequence[int], tokens: Sequence[int], logprobs: Sequence[float], policy: str = "default"
) -> Sample:
    """A sample of these tokens."""
    request = GenerationRequest("p", "p", Sampling(1.0), adapter=policy)
    return Sample(request, tuple(prompt), tuple(tokens), tuple(logprobs), "", "stop")


def batch_of(samples: Sequence[Sample]) -> TokenBatch:
    return make_batch([s.prompt_ids for s in samples], [s.token_ids for s in samples])


def make_samples(model: Any, count: int, *, policy: str = "default", seed: int = 0) -> list[Sample]:
    """Random tokens of uneven lengths with the model's own log-probabilities, as the active adapter has them."""
    draw = torch.Generator().manual_seed(seed)
    blank = []
    for _ in range(count):
        prompt, tokens = (
            int(torch.randint(low, high, (1,), generator=draw)) for low, high in ((2, 12), (1, 16))
        )
        ids = torch.randint(3, 250, (prompt + tokens,), generator=draw).tolist()
        blank.append(make_sample(ids[:prompt], ids[prompt:], [0.0] * tokens, policy))
    model.set_adapter(policy)
    with torch.no_grad():
        values = plain_logprobs(model, batch_of(blank)).tolist()
    return [
        make_sample(s.prompt_ids, s.token_ids, row[: len(s.token_ids)], policy)
        for s, row in zip(blank, values, strict=True)
    ]


def make_rows(model: Any, count: int, **more: Any) -> list[Row]:
    """Rows whose advantages are 1, -1, 0.5, -0.5, 1, …"""
    kl = more.pop("kl", 0.0)
    samples = make_samples(model, count, **more)
    return [Row(s, (1.0, -1.0, 0.5, -0.5)[i % 4], kl=kl) for i, s in enumerate(samples)]
