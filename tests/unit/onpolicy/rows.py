"""Rows as a policy would have sampled them, without an engine."""

from typing import Any

import torch

from reasoner.onpolicy.logprobs import make_batch, plain_logprobs
from reasoner.onpolicy.samples import Row, Sample


def make_samples(model: Any, count: int, *, policy: str = "default", seed: int = 0) -> list[Sample]:
    """Random tokens of uneven lengths with the model's own log-probabilities, as the active adapter has them."""
    draw = torch.Generator().manual_seed(seed)
    blank = []
    for _ in range(count):
        prompt, tokens = (
            int(torch.randint(low, high, (1,), generator=draw)) for low, high in ((2, 12), (1, 16))
        )
        ids = torch.randint(3, 250, (prompt + tokens,), generator=draw).tolist()
        blank.append(Sample(tuple(ids[:prompt]), tuple(ids[prompt:]), (0.0,) * tokens, "", "stop", policy, 0))
    model.set_adapter(policy)
    with torch.no_grad():
        values = plain_logprobs(model, make_batch(blank)).tolist()
    return [
        Sample(s.prompt_ids, s.token_ids, tuple(row[: len(s.token_ids)]), "", "stop", policy, 0)
        for s, row in zip(blank, values, strict=True)
    ]


def make_rows(model: Any, count: int, **more: Any) -> list[Row]:
    """Rows whose advantages are 1, -1, 0.5, -0.5, 1, …"""
    kl = more.pop("kl", 0.0)
    samples = make_samples(model, count, **more)
    return [Row(s, (1.0, -1.0, 0.5, -0.5)[i % 4], kl=kl) for i, s in enumerate(samples)]
