"""The engine samples with the adapter of the last sync, the base stays the base, and a dead engine is replaced."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from reasoner.engines.start import open_engine
from reasoner.errors import EngineError, TrainingError, UsageError
from reasoner.onpolicy.adapters import AdapterFolder
from reasoner.onpolicy.gate import Gate
from reasoner.onpolicy.logprobs import token_logprobs
from reasoner.onpolicy.sampler import OnPolicySampler, Sample
from reasoner.records import GenerationRequest, Sampling
from tests.unit.onpolicy.conftest import move, settings

GREEDY = Sampling(temperature=0.0, max_tokens=12)
DRAWN = Sampling(temperature=1.0, max_tokens=12)
QUESTIONS = ["1 + 1", "two and three", "x"]


def requests(adapter: str, sampling: Sampling = GREEDY, n: int = 1) -> list[GenerationRequest]:
    return [
        GenerationRequest(question, question, sampling, 0, index, adapter)
        for question in QUESTIONS
        for index in range(n)
    ]


def texts(samples: list[Sample]) -> list[tuple[int, ...]]:
    return [sample.token_ids for sample in samples]


def greedy(model: Any, sample: Sample) -> tuple[int, ...]:
    """What the training model itself says, by one argmax a token."""
    ids = list(sample.prompt_ids)
    for _ in range(GREEDY.max_tokens):
        ids.append(int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == 1:
            break
    return tuple(ids[len(sample.prompt_ids) :])


def scored(policy: Any, samples: list[Sample], temperature: float = 1.0) -> list[list[float]]:
    with torch.no_grad():
        found = token_logprobs(
            policy, [s.prompt_ids for s in samples], [s.token_ids for s in samples], temperature=temperature
        )
    return [row[mask].tolist() for row, mask in zip(found.logprobs, found.mask, strict=True)]


def test_after_an_update_the_new_adapter_samples_and_the_base_does_not_change(
    policy: Any, sampler: OnPolicySampler
) -> None:
    move(policy, seed=1)
    sampler.sync("policy", policy)
    both = [*requests(""), *requests("policy")]
    first = sampler.sample(both)
    base, old = texts(first[:3]), texts(first[3:])
    move(policy, seed=2)
    assert texts(sampler.sample(both))[3:] == old, "without a sync the engine has the old weights"
    sampler.sync("policy", policy)
    second = sampler.sample(both)
    assert texts(second[:3]) == base
    assert texts(second[3:]) != old
    assert texts(second[3:]) == [greedy(policy, sample) for sample in second[3:]]
    with policy.disable_adapter():
        assert base == [greedy(policy, sample) for sample in second[:3]]
    assert set(sampler.parts.take()) == {"sync", "generate"}


def test_two_adapters_and_the_base_share_a_batch(policy: Any, sampler: OnPolicySampler) -> None:
    move(policy, seed=1)
    sampler.sync("solver", policy)
    move(policy, seed=2)
    sampler.sync("writer", policy)
    mixed = [*requests("writer"), *requests(""), *requests("solver")]
    together = texts(sampler.sample(mixed))
    apart = [texts(sampler.sample(requests(name))) for name in ("writer", "", "solver")]
    assert together == [row for rows in apart for row in rows]
    assert len({tuple(rows) for rows in apart}) == 3


def test_the_gate_passes_equal_weights_and_stops_others(policy: Any, sampler: OnPolicySampler) -> None:
    move(policy, seed=1, scale=0.05)
    sampler.sync("policy", policy)
    samples = sampler.sample(requests("policy", DRAWN, n=4))
    gate = Gate("float32")
    assert gate.check([s.logprobs for s in samples], scored(policy, samples)) < 1e-4
    move(policy, seed=2, scale=2.0)
    with pytest.raises(TrainingError, match="was the adapter sent"):
        gate.check([s.logprobs for s in samples], scored(policy, samples))
    with pytest.raises(TrainingError, match="step 0: sampler and trainer differ"):
        Gate("float32").check([s.logprobs for s in samples], scored(policy, samples))


def test_the_gate_names_a_wrong_template(policy: Any, sampler: OnPolicySampler) -> None:
    sampler.sync("policy", policy)
    samples = sampler.sample(requests("policy", DRAWN, n=4))
    own = scored(policy, samples)
    moved = [[row[0] - 3.0, *row[1:]] for row in own]
    with pytest.raises(TrainingError, match="chat template"):
        Gate("float32").check([s.logprobs for s in samples], moved)
    with pytest.raises(TrainingError, match="temperature"):
        Gate("float32").check([s.logprobs for s in samples], [[value * 0.5 for value in row] for row in own])
    with pytest.raises(TrainingError, match="the tokens were changed"):
        Gate("float32").check([s.logprobs for s in samples], [row[1:] for row in own])


def test_truncated_distributions_are_refused(policy: Any, sampler: OnPolicySampler) -> None:
    sampler.sync("policy", policy)
    for sampling in (Sampling(1.0, top_p=0.9), Sampling(1.0, top_k=5)):
        with pytest.raises(UsageError, match="top_p=1"):
            sampler.sample(requests("policy", sampling))


def test_an_adapter_is_written_in_bfloat16_and_removed_when_told(policy: Any, tmp_path: Path) -> None:
    move(policy, seed=3)
    with AdapterFolder(tmp_path) as folder:
        first = folder.write("policy", policy)
        tensors = load_file(first / "adapter_model.safetensors")
        assert tensors and all(tensor.dtype == torch.bfloat16 for tensor in tensors.values())
        second = folder.write("policy", policy)
        folder.remove(first)
        assert second.is_dir() and not first.exists()
        with pytest.raises(UsageError, match="no adapter 'writer'"):
            folder.write("writer", policy, "writer")
    assert not any(tmp_path.iterdir())


def test_a_killed_engine_is_started_again_and_the_same_data_comes_back(
    base: Path, policy: Any, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    started: list[Any] = []

    def start() -> Any:
        started.append(open_engine(settings(base), log=tmp_path / "engine.log"))
        return started[-1]

    move(policy, seed=1)
    with OnPolicySampler(start, AutoTokenizer.from_pretrained(base), 128) as sampler:
        sampler.sync("policy", policy)
        wanted = requests("policy", DRAWN, n=3)
        before = sampler.sample(wanted)
        os.kill(started[-1].pid, signal.SIGKILL)
        after = sampler.sample(wanted)
        assert (sampler.restarts, len(started)) == (1, 2)
        assert texts(after) == texts(before) and [s.logprobs for s in after] == [s.logprobs for s in before]
        with pytest.raises(EngineError, match="not loaded"):
            sampler.sample(requests("nobody"))
        assert sampler.restarts == 1, "an error of the caller's is no reason to start anew"
