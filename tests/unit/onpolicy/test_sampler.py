"""The sampler: new weights after each sync, the base beside them, a dead engine replaced by one that knows the same.

Wrong if a stale adapter answers, if the order is lost, if samples differ after a restart, or if a failed sync leaves
the policy without its old weights.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.remote import RemoteEngine
from reasoner.errors import EngineError, ModelError, UsageError
from reasoner.onpolicy.logprobs import make_batch, token_logprobs
from reasoner.onpolicy.opening import open_sampler
from reasoner.onpolicy.sampler import Sampler
from reasoner.onpolicy.samples import Sample
from reasoner.onpolicy.storage import AdapterStorage
from reasoner.onpolicy.timers import Part
from reasoner.records import GenerationRequest, Sampling

SCRIPTS = "tests.unit.onpolicy.scripts"
PROMPT = "A farmer has twelve cows"


def ask(
    adapter: str = "", *, prompt: str = PROMPT, temperature: float = 1.0, **more: Any
) -> GenerationRequest:
    sampling = Sampling(temperature, max_tokens=more.pop("tokens", 12), **more.pop("sampling", {}))
    return GenerationRequest("p", prompt, sampling, adapter=adapter, **more)


def scripted(folder: Path, function: str, **more: Any) -> Sampler:
    """A scripted engine in a real process."""
    settings = EngineSettings("scripted", folder, adapters=True, options={"script": f"{SCRIPTS}:{function}"})
    return Sampler(
        lambda: RemoteEngine(settings, log=folder / "engine.log"),
        None,
        storage=AdapterStorage(folder),
        log=lambda line: None,
        **more,
    )


def kill(sampler: Sampler) -> int:
    """SIGKILL to the engine's process; returns its pid."""
    assert isinstance(sampler.engine, RemoteEngine)
    pid = sampler.engine.pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    return pid


def texts(samples: list[Sample]) -> list[str]:
    return [sample.text for sample in samples]


def test_after_a_sync_the_new_weights_answer_and_the_base_stays(
    sampler: Sampler, policy: Callable[..., Any]
) -> None:
    import torch

    model = policy(std=0.3)
    batch = [ask(), ask("default"), ask(index=1), ask("default", index=1)]
    greedy = [ask(temperature=0, index=i, adapter=a) for i, a in enumerate(["", "default"])]
    sampler.sync(model, step=0)
    before, calm = sampler.sample(batch), sampler.sample(greedy)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_B" in name:
                weight.neg_()
    sampler.sync(model, step=1)
    after, calmer = sampler.sample(batch), sampler.sample(greedy)
    assert calmer[0].token_ids == calm[0].token_ids and calmer[0].logprobs == calm[0].logprobs
    assert calmer[1].token_ids != calm[1].token_ids
    assert [s.version for s in before] == [-1, 0, -1, 0] and [s.version for s in after] == [-1, 1, -1, 1]
    for samples, fits in ((after, True), (before, False)):
        mine = [s for s in samples if s.policy]
        with torch.no_grad():
            now_BT = token_logprobs(model, make_batch(mine))[0]
        off = max(
            abs(a - b) for row, s in zip(now_BT.tolist(), mine, strict=True)
            for a, b in zip(row, s.logprobs, strict=False)
        )  # fmt: skip
        assert (off < 0.1) is fits, off


def test_several_policies_and_the_base_share_a_batch(sampler: Sampler, policy: Callable[..., Any]) -> None:
    sampler.sync(policy(names=("solver", "writer"), std=0.3), step=4)
    names = ["writer", "", "solver", "writer", ""]
    samples = sampler.sample([ask(name, temperature=0) for name in names])
    assert [s.policy for s in samples] == names
    assert dict(sampler.versions) == {"solver": 4, "writer": 4}
    assert samples[1].token_ids == samples[4].token_ids and samples[0].token_ids == samples[3].token_ids
    assert len({samples[0].token_ids, samples[1].token_ids, samples[2].token_ids}) == 3
    assert all(len(s.prompt_ids) == len(PROMPT) + 1 and s.prompt_ids[0] == 0 for s in samples)


def test_the_old_version_is_gone_from_engine_and_storage(tmp_path: Path, policy: Callable[..., Any]) -> None:
    model = policy()
    with scripted(tmp_path, "versioned") as sampler:
        for step in range(3):
            sampler.sync(model, step=step)
            assert texts(sampler.sample([ask("default", prompt="q")])) == [f"default@{step} q"]
            (folder,) = tmp_path.glob("reasoner-adapters*")
            assert [p.name for p in folder.iterdir()] == [f"default@{step}"]
            if step:
                with pytest.raises(EngineError, match="not loaded"):
                    list(sampler.engine.generate([ask(f"default@{step - 1}")], logprobs=True))
        sampler.sync(model, step=2)  # a step that is done again
        assert texts(sampler.sample([ask("default", prompt="q")])) == ["default@2.1 q"]
        assert sampler.timers.take().share(Part.SYNC) > 0
    assert not list(tmp_path.glob("reasoner-adapters*"))


def test_a_killed_engine_comes_back_with_its_adapters(tmp_path: Path, policy: Callable[..., Any]) -> None:
    model = policy()
    with scripted(tmp_path, "versioned") as sampler:
        sampler.sync(model, step=0)
        sampler.sync(model, step=1)
        old = kill(sampler)
        requests = [ask("default", prompt=str(i)) for i in range(5)] + [ask(prompt="b")]
        assert texts(sampler.sample(requests)) == [f"default@1 {i}" for i in range(5)] + ["base b"]
        assert isinstance(sampler.engine, RemoteEngine) and sampler.engine.pid != old
        kill(sampler)
        sampler.sync(model, step=2)
        assert texts(sampler.sample([ask("default", prompt="q")])) == ["default@2 q"]
        assert sampler.restarted == 2


def test_a_dead_engine_is_not_started_for_ever(tmp_path: Path) -> None:
    with scripted(tmp_path, "versioned", restarts=0) as sampler:
        kill(sampler)
        with pytest.raises(EngineError, match="SIGKILL"):
            sampler.sample([ask()])


def test_a_request_that_is_wrong_starts_no_engine(tmp_path: Path) -> None:
    with scripted(tmp_path, "versioned") as sampler:
        with pytest.raises(EngineError, match="never synced"):
            sampler.sample([ask("default")])
        assert sampler.restarted == 0
        with pytest.raises(UsageError, match="'@'"):
            sampler.load("a@b", tmp_path)


def test_a_cut_distribution_is_refused_in_training_only(tmp_path: Path) -> None:
    with scripted(tmp_path, "versioned") as sampler:
        sampler.load("default", tmp_path)
        for cut in ({"top_p": 0.9}, {"top_k": 5}):
            with pytest.raises(UsageError, match="bias"):
                sampler.sample([ask("default", sampling=cut)])
            assert sampler.sample([ask("default", sampling=cut)], evaluation=True)
            assert sampler.sample([ask("", sampling=cut)])


@pytest.mark.parametrize(("function", "words"), [("infinite", "not finite"), ("empty", "0 tokens")])
def test_what_can_not_be_trained_on_is_an_error(tmp_path: Path, function: str, words: str) -> None:
    with scripted(tmp_path, function) as sampler, pytest.raises(EngineError, match=words):
        sampler.sample([ask()])


def test_a_failed_sync_leaves_the_old_weights_in_service(
    sampler: Sampler, policy: Callable[..., Any]
) -> None:
    from peft import LoraConfig

    model = policy(std=0.3)
    sampler.sync(model, step=0)
    before = sampler.sample([ask("default", temperature=0)])
    model.add_adapter("wide", LoraConfig(r=64, target_modules=["q_proj"]))
    with pytest.raises(ModelError, match="rank 64"):
        sampler.sync(model, step=1, policies=["wide"])
    assert sampler.sample([ask("default", temperature=0)])[0].token_ids == before[0].token_ids
    assert dict(sampler.versions) == {"default": 0}
    folder = sampler._storage.folder
    assert folder and [p.name for p in folder.iterdir()] == ["default@0"]


def test_another_tokenizer_than_the_engines_is_an_error(tiny: Path, tmp_path: Path) -> None:
    settings = EngineSettings("transformers", tiny, "float32", options={"max_model_len": 64})
    with open_sampler(settings, log=tmp_path / "log", in_process=True) as sampler:
        sampler._encode = lambda requests: [[1, 2, 3]] * len(requests)
        with pytest.raises(EngineError, match="tokenizer of the base"):
            sampler.sample([ask()])


def test_sleeping_changes_nothing_but_the_time(sampler: Sampler, policy: Callable[..., Any]) -> None:
    sampler.sync(policy(std=0.3), step=0)
    first = sampler.sample([ask("default"), ask()])
    sampler.sleep()
    sampler.sleep()
    assert sampler.sample([ask("default"), ask()]) == first
    sampler.sleep()
    sampler.sync(policy(std=0.3), step=1)
    assert sampler.sample([ask("default"), ask()])


def test_a_closed_sampler_says_so(tmp_path: Path) -> None:
    sampler = scripted(tmp_path, "versioned")
    sampler.close()
    sampler.close()
    with pytest.raises(EngineError, match="closed"):
        sampler.sample([ask()])
