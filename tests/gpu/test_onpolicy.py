"""The on-policy loop on an accelerator: new weights after an update, the base as before, one copy, sleep and wake.

Wrong if the engine samples with old weights, if the base's tokens change for the same batch, if more adapters cost more
copies of the base, if a sleeping engine keeps the card's memory, or if it wakes as another model.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.protocol import EngineSettings
from reasoner.onpolicy.gate import Gate, measure
from reasoner.onpolicy.logprobs import token_logprobs
from reasoner.onpolicy.opening import open_sampler
from reasoner.onpolicy.sampler import OnPolicySampler, Sample
from reasoner.records import GenerationRequest, Sampling
from tests.support.tiny_llama import make_model
from tests.unit.onpolicy.conftest import make_policy

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible"),
]
GIB = 2**30
PROMPTS = ("Ann has 3 pens and buys", "Program of Thought: answer =", "Strategies tried", "7 and 5 make")
SHARE = 0.1


def batch(adapter: str, temperature: float = 1.0) -> list[GenerationRequest]:
    sampling = Sampling(temperature, max_tokens=24)
    return [GenerationRequest(p, p, sampling, 0, i, adapter) for p in PROMPTS for i in range(4)]


def tokens(samples: list[Sample]) -> list[tuple[int, ...]]:
    return [sample.token_ids for sample in samples]


def trainers(model: Any, samples: list[Sample]) -> list[list[float]]:
    with torch.no_grad():
        found = token_logprobs(model, [s.prompt_ids for s in samples], [s.token_ids for s in samples])
    return [row[mask].tolist() for row, mask in zip(found.logprobs, found.mask, strict=True)]


def apart(model: Any, samples: list[Sample]) -> float:
    return measure([s.logprobs for s in samples], trainers(model, samples)).mean


def in_use() -> float:
    """GiB in use on the card, of all processes."""
    free, total = torch.cuda.mem_get_info()
    return float(total - free) / GIB


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("gpu") / "tiny")


@pytest.fixture(scope="module")
def sampler(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnPolicySampler]:
    options = {
        "max_model_len": 256,
        "max_num_seqs": 64,
        "enforce_eager": True,
        "gpu_memory_utilization": SHARE,
    }
    settings = EngineSettings("vllm", base, "bfloat16", max_lora_rank=8, options=options)
    log = tmp_path_factory.mktemp("log") / "engine.log"
    with open_sampler(settings, log=log, policies=4, share_card=True) as made:
        yield made


def test_an_update_reaches_the_engine_and_the_base_stays(sampler: OnPolicySampler, base: Path) -> None:
    model = make_policy(base, seed=1).to("cuda")
    sampler.sample(batch("", 0.0))  # fills the prefix cache, so that the next two are alike
    bare = tokens(sampler.sample(batch("", 0.0)))
    sampler.sync("policy", model)
    first = sampler.sample(batch("policy"))
    gate = Gate("bfloat16")
    gate.check([s.logprobs for s in first], trainers(model, first))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(weight, std=0.3)
    stale = apart(model, sampler.sample(batch("policy")))
    sampler.sync("policy", model)
    new = sampler.sample(batch("policy"))
    print(
        f"\nstep 0: {gate.history[0].mean:.4f}, old adapter: {stale:.3f}, new adapter: {apart(model, new):.4f}"
    )
    assert apart(model, new) < 0.1 < stale
    assert tokens(sampler.sample(batch("", 0.0))) == bare


def test_more_adapters_and_a_mixed_batch(sampler: OnPolicySampler, base: Path) -> None:
    model = make_policy(base, seed=2, std=0.3).to("cuda")
    before = in_use()
    for name in ("solver", "twin", "writer"):
        sampler.sync(name, model)
    names = ("solver", "", "twin", "writer")
    mixed = sampler.sample([request for name in names for request in batch(name)])
    adapted = [s for s in mixed if s.policy]
    assert apart(model, adapted) < 0.1, "an adapter's requests beside the base's are the adapter's"
    with model.disable_adapter():
        assert apart(model, [s for s in mixed if not s.policy]) < 0.1, (
            "the base's beside adapters' are the base's"
        )
    assert in_use() - before < 0.5


def test_a_sleeping_engine_gives_the_card_back_and_wakes_the_same(
    sampler: OnPolicySampler, base: Path
) -> None:
    model = make_policy(base, seed=3, std=0.3).to("cuda")
    sampler.sync("policy", model)
    sampler.sample(batch("policy"))
    drawn = sampler.sample(batch("policy"))
    awake = in_use()
    sampler.rest()
    asleep = in_use()
    whole = torch.cuda.mem_get_info()[1] / GIB
    assert awake - asleep > 0.5 * SHARE * whole, f"{awake:.1f} GiB awake, {asleep:.1f} GiB asleep"
    taken = torch.ones(int(0.5 * SHARE * whole * GIB), dtype=torch.uint8, device="cuda")
    del taken  # torch keeps it for itself until the engine wakes
    sampler.sample(
        batch("policy")
    )  # sleep emptied the prefix cache: fill it, so that like is compared with like
    again = sampler.sample(batch("policy"))
    assert tokens(again) == tokens(drawn)
    assert apart(model, again) < 0.1
    sampler.rest()
    model = make_policy(base, seed=4, std=0.3).to("cuda")
    sampler.sync("policy", model)
    assert apart(model, sampler.sample(batch("policy"))) < 0.1, "an adapter that was sent while it slept"
