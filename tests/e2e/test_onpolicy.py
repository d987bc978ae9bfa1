"""The on-policy loop on a real vLLM engine: GRPO steps through TRL, the adapter sent alone, the base untouched.

Wrong if vLLM serves old weights after a sync, if the base's answers change, if sampler and trainer are not the same
policy, or if a killed engine loses or changes a step's data.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.start import open_engine
from reasoner.onpolicy.gate import Gate
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.onpolicy.trl_rollout import rollout_func
from tests.unit.onpolicy import conftest
from tests.unit.onpolicy.test_sampler import DRAWN, requests, scored, texts
from tests.unit.onpolicy.test_trl_rollout import trainer

base, policy, move = conftest.base, conftest.policy, conftest.move
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


@pytest.fixture
def vllm(base: Path, tmp_path: Path) -> Iterator[OnPolicySampler]:
    from transformers import AutoTokenizer

    settings = EngineSettings(
        "vllm", base, "float32", adapters=True, options={"max_model_len": 128, "max_num_seqs": 16}
    )

    def start() -> Any:
        return open_engine(settings, log=tmp_path / "engine.log")

    with OnPolicySampler(start, AutoTokenizer.from_pretrained(base), 128) as sampler:
        yield sampler


def test_grpo_steps_on_vllm_sync_the_adapter_alone(
    policy: Any, vllm: OnPolicySampler, tmp_path: Path
) -> None:
    bare = texts(vllm.sample(requests("")))
    before = {name: weight.detach().clone() for name, weight in policy.named_parameters()}
    gate = Gate("float32", threshold=0.02, stop=0.02)
    made = trainer(policy, rollout_func(vllm, lambda p: (p, True), max_tokens=8, gate=gate), tmp_path)
    made.train()
    changed = {n for n, weight in policy.named_parameters() if not torch.equal(weight, before[n])}
    assert changed and all("lora_" in name for name in changed)
    seen = [
        row["sampler_trainer_difference"]
        for row in made.state.log_history
        if "sampler_trainer_difference" in row
    ]
    assert len(seen) == 3 and max(seen) < 0.02
    assert texts(vllm.sample(requests(""))) == bare, "the frozen base answers as before, to the token"

    move(policy, seed=5)
    vllm.sync("policy", policy)
    first = vllm.sample(requests("policy", DRAWN, n=4))
    assert Gate("float32", threshold=0.02).check([s.logprobs for s in first], scored(policy, first)) < 0.02
    os.kill(vllm._engine.pid, signal.SIGKILL)  # type: ignore[attr-defined]
    again = vllm.sample(requests("policy", DRAWN, n=4))
    assert vllm.restarts == 1 and texts(again) == texts(first), "the step is repeated with the same data"
