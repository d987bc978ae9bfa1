"""A sampler on several engines.

Wrong if, after a sync, one engine samples with the old adapter, or if one that dies ends the sampling or comes back
without its adapter.
"""

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.remote import RemoteEngine
from reasoner.engines.several import SeveralEngines, deal
from reasoner.engines.transformers_engine import TransformersEngine
from reasoner.errors import EngineError
from reasoner.onpolicy.adapters import AdapterFolder
from reasoner.onpolicy.opening import base_tokenizer
from reasoner.onpolicy.sampler import OnPolicySampler, Sample
from reasoner.records import GenerationRequest, Sampling
from tests.unit.onpolicy.conftest import move, settings

QUESTIONS = [f"what is {a} and {a}?" for a in range(4)]


def ask(samples: int = 2) -> list[GenerationRequest]:
    sampling = Sampling(0.0, max_tokens=8)
    return [
        GenerationRequest(f"p{i}", text, sampling, 0, sample, "policy")
        for i, text in enumerate(QUESTIONS)
        for sample in range(samples)
    ]


def tokens(samples: list[Sample]) -> list[tuple[int, ...]]:
    return [sample.token_ids for sample in samples]


def test_after_a_sync_both_sample_with_the_new_adapter(base: Path, policy: Any, tmp_path: Path) -> None:
    """Greedy samples of one engine are what both must give, after each step."""
    assert all(deal(ask(), 2)), "both are asked"
    one = partial(TransformersEngine, settings(base))
    tokenizer, wanted = base_tokenizer(base), list[list[tuple[int, ...]]]()
    with (
        OnPolicySampler(one, tokenizer, 128, folder=AdapterFolder(tmp_path)) as alone,
        OnPolicySampler(
            lambda: SeveralEngines([one, one]), tokenizer, 128, folder=AdapterFolder(tmp_path)
        ) as several,
    ):
        for seed in (1, 2):
            move(policy, seed)
            for sampler in (alone, several):
                sampler.sync("policy", policy)
            wanted.append(tokens(alone.sample(ask())))
            assert tokens(several.sample(ask())) == wanted[-1]
    assert all(old != new for old, new in zip(*wanted, strict=True)), "an old adapter would show"


class Started:
    """Opens pairs of scripted engines in real processes, and knows those of the last pair."""

    def __init__(self, base: Path, folder: Path) -> None:
        options = {"script": "tests.unit.onpolicy.scripts:named"}
        self.settings = EngineSettings("scripted", base, adapters=True, options=options)
        self.folder, self.pairs, self.engines = folder, 0, list[RemoteEngine]()

    def __call__(self) -> SeveralEngines:
        self.pairs, self.engines = self.pairs + 1, []
        return SeveralEngines([partial(self._one, i) for i in range(2)])

    def _one(self, number: int) -> RemoteEngine:
        self.engines.append(RemoteEngine(self.settings, log=self.folder / f"engine-{number}.log"))
        return self.engines[-1]

    def kill(self, number: int) -> None:
        pid = self.engines[number].pid
        assert pid
        os.kill(pid, signal.SIGKILL)


def test_when_one_dies_both_come_back_with_their_adapter(
    base: Path, fresh: Callable[..., Any], tmp_path: Path
) -> None:
    """Killed between two calls, in a sync, and in the middle of a generation."""
    started, model = Started(base, tmp_path), fresh()
    expected = [f"policy {request.prompt}" for request in ask(50)]
    original: Callable[..., Any] = RemoteEngine.generate

    def dying(self: RemoteEngine, *args: Any, **more: Any) -> Any:
        for number, answer in enumerate(original(self, *args, **more)):
            yield answer
            if number == 10 and started.pairs == 3 and self is started.engines[1]:
                started.kill(1)
                self.close()
                raise EngineError("it died")  # the rest may be here already, sent before

    with (
        pytest.MonkeyPatch.context() as patch,
        OnPolicySampler(
            started, base_tokenizer(base), 128, folder=AdapterFolder(tmp_path), log=lambda line: None
        ) as sampler,
    ):
        sampler.sync("policy", model)
        started.kill(1)
        assert [s.text for s in sampler.sample(ask(50))] == expected
        started.kill(0)
        sampler.sync("policy", model)  # the other engine has got it
        assert [s.text for s in sampler.sample(ask(50))] == expected
        assert (sampler.restarts, started.pairs) == (2, 3)
        patch.setattr(RemoteEngine, "generate", dying)
        assert [s.text for s in sampler.sample(ask(50))] == expected
        assert (sampler.restarts, started.pairs, sampler.versions["policy"]) == (3, 4, 2)
