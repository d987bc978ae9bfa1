"""The sampler and the engine behind it: deaths, sleep, versions that go, and what can't be trained on.

Wrong if a restarted engine lacks an adapter, if an engine is restarted for ever or for a wrong request, if a failed
sync takes the old weights away, or if old versions pile up.
"""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.protocol import EngineSettings
from reasoner.engines.remote import RemoteEngine
from reasoner.engines.scripted import ScriptedEngine
from reasoner.engines.transformers_engine import TransformersEngine
from reasoner.errors import EngineError, ModelError, UsageError
from reasoner.onpolicy.adapters import AdapterFolder
from reasoner.onpolicy.opening import base_tokenizer, open_sampler
from reasoner.onpolicy.parts import Part
from reasoner.onpolicy.sampler import OnPolicySampler, Sample
from reasoner.records import GenerationRequest, Sampling

SCRIPTS = "tests.unit.onpolicy.scripts"


def ask(adapter: str = "", prompt: str = "q", *, temperature: float = 1.0, **more: Any) -> GenerationRequest:
    return GenerationRequest("p", prompt, Sampling(temperature, max_tokens=12, **more), adapter=adapter)


def texts(samples: list[Sample]) -> list[str]:
    return [sample.text for sample in samples]


class Counted:
    """Starts scripted engines in real processes and counts them."""

    def __init__(self, base: Path, folder: Path, function: str) -> None:
        self.settings = EngineSettings(
            "scripted", base, adapters=True, options={"script": f"{SCRIPTS}:{function}"}
        )
        self.log, self.engines = folder / "engine.log", list[RemoteEngine]()

    def __call__(self) -> RemoteEngine:
        self.engines.append(RemoteEngine(self.settings, log=self.log))
        return self.engines[-1]

    def kill(self) -> None:
        pid = self.engines[-1].pid
        assert pid
        os.kill(pid, signal.SIGKILL)


def scripted(base: Path, folder: Path, function: str = "named") -> tuple[OnPolicySampler, Counted]:
    start = Counted(base, folder, function)
    made = OnPolicySampler(
        start, base_tokenizer(base), 256, folder=AdapterFolder(folder), log=lambda line: None
    )
    return made, start


def test_a_killed_engine_comes_back_with_its_adapters(
    base: Path, tmp_path: Path, fresh: Callable[..., Any]
) -> None:
    model = fresh(names=("solver", "writer"))
    sampler, start = scripted(base, tmp_path)
    with sampler:
        for name in ("solver", "writer", "solver"):
            sampler.sync(name, model, name)
        start.kill()
        wanted = [ask("solver", str(i)) for i in range(5)] + [ask("writer"), ask()]
        expected = [f"solver {i}" for i in range(5)] + ["writer q", "base q"]
        assert texts(sampler.sample(wanted)) == expected
        start.kill()  # and in the middle of a sync
        sampler.sync("solver", model, "solver")
        assert texts(sampler.sample(wanted)) == expected
        assert (sampler.restarts, len(start.engines)) == (2, 3)
        assert dict(sampler.versions) == {"solver": 3, "writer": 1}


def test_only_the_newest_version_is_kept(base: Path, tmp_path: Path, fresh: Callable[..., Any]) -> None:
    model = fresh()
    sampler, _ = scripted(base, tmp_path)
    with sampler:
        for number in (1, 2, 3):
            sampler.sync("policy", model)
            (folder,) = tmp_path.glob("reasoner-adapters*")
            assert [p.name for p in folder.iterdir()] == [f"policy-{number:06d}"]
        assert sampler.sample([ask("policy")])[0].version == 3
        assert sampler.parts.take_step().share(Part.SYNC) > 0
        sampler.unload("policy")
        assert list(folder.iterdir()) == []
        with pytest.raises(EngineError, match="not loaded"):
            sampler.sample([ask("policy")])
    assert not list(tmp_path.glob("reasoner-adapters*"))


def test_a_finished_adapter_stays_where_it_is(base: Path, tmp_path: Path, fresh: Callable[..., Any]) -> None:
    mine = tmp_path / "mine"
    fresh().save_pretrained(mine)
    sampler, _ = scripted(base, tmp_path)
    with sampler:
        sampler.load("twin", mine)
        assert texts(sampler.sample([ask("twin")])) == ["twin q"]
        sampler.sync("twin", fresh())
        sampler.unload("twin")
    assert (mine / "adapter_config.json").is_file()


def test_an_engine_that_keeps_dying_is_given_up(base: Path, tmp_path: Path) -> None:
    sampler, start = scripted(base, tmp_path)
    original = RemoteEngine.generate
    try:

        def dying(self: RemoteEngine, *args: Any, **more: Any) -> Any:
            start.kill()
            return original(self, *args, **more)

        RemoteEngine.generate = dying  # type: ignore[method-assign]
        with pytest.raises(EngineError, match="SIGKILL"):
            sampler.sample([ask()])
    finally:
        RemoteEngine.generate = original  # type: ignore[method-assign]
        sampler.close()
    assert len(start.engines) == 3


def test_a_wrong_request_starts_no_engine(base: Path, tmp_path: Path) -> None:
    sampler, start = scripted(base, tmp_path)
    with sampler, pytest.raises(EngineError, match="not loaded"):
        sampler.sample([ask("policy")])
    assert len(start.engines) == 1
    with pytest.raises(EngineError, match="closed"):
        sampler.sample([ask()])
    sampler.close()
    assert len(start.engines) == 1


def test_a_cut_distribution_is_not_learned_from(base: Path, tmp_path: Path) -> None:
    sampler, _ = scripted(base, tmp_path)
    with sampler:
        for cut in ({"top_p": 0.9}, {"top_k": 5}):
            with pytest.raises(UsageError, match="top_p=1"):
                sampler.sample([ask(**cut)])
            assert [done.text for done in sampler.complete([ask(**cut)])] == ["base q"]


def test_what_nobody_learns_from_is_the_same_text_without_ids(
    base: Path, tmp_path: Path, fresh: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EngineSettings("transformers", base, "float32", options={"max_model_len": 64})
    asked: list[bool] = []
    original = TransformersEngine.generate

    def watched(self: Any, requests: Any, *, logprobs: bool = False) -> Any:
        asked.append(logprobs)
        return original(self, requests, logprobs=logprobs)

    monkeypatch.setattr(TransformersEngine, "generate", watched)
    wanted = [ask(name, f"question {i}", temperature=0) for i in range(3) for name in ("policy", "")]
    with open_sampler(
        settings, log=tmp_path / "log", in_process=True, folder=AdapterFolder(tmp_path)
    ) as sampler:
        sampler.sync("policy", fresh(std=0.3))
        sampled, completed = sampler.sample(wanted), sampler.complete(wanted)
        assert sampler.parts.take_step().share(Part.GENERATE) > 0
    assert asked == [True, False], "log-probabilities are for what is learned from"
    assert [done.text for done in completed] == texts(sampled) and len(set(texts(sampled))) > 3
    for done, sample in zip(completed, sampled, strict=True):
        assert (done.prompt_tokens, done.completion_tokens) == (len(sample.prompt_ids), len(sample.token_ids))
        assert (done.finish, done.token_ids, done.logprobs) == (sample.finish, (), ())


@pytest.mark.parametrize(("function", "words"), [("infinite", "not finite"), ("broken", "with 'error'")])
def test_what_can_not_be_trained_on_is_an_error(
    base: Path, tmp_path: Path, function: str, words: str
) -> None:
    sampler, _ = scripted(base, tmp_path, function)
    with sampler, pytest.raises(EngineError, match=words):
        sampler.sample([ask()])


def test_a_broken_completion_is_an_error_too(base: Path, tmp_path: Path) -> None:
    sampler, _ = scripted(base, tmp_path, "broken")
    with sampler, pytest.raises(EngineError, match="with 'error'"):
        sampler.complete([ask()])


def test_a_failed_sync_leaves_the_old_weights_in_service(
    base: Path, tmp_path: Path, fresh: Callable[..., Any]
) -> None:
    from peft import LoraConfig

    settings = EngineSettings("transformers", base, "float32", options={"max_model_len": 64})
    model = fresh(std=0.3)
    model.add_adapter("wide", LoraConfig(r=64, target_modules=["q_proj"]))
    folder = AdapterFolder(tmp_path)
    with open_sampler(settings, log=tmp_path / "log", in_process=True, folder=folder) as sampler:
        sampler.sync("policy", model)
        before = sampler.sample([ask("policy", temperature=0)])
        with pytest.raises(ModelError, match="rank 64"):
            sampler.sync("policy", model, "wide")
        assert sampler.sample([ask("policy", temperature=0)]) == before
        assert dict(sampler.versions) == {"policy": 1}
        assert folder.path and [p.name for p in folder.path.iterdir()] == ["policy-000001"]


def test_sleeping_changes_nothing_but_the_time(
    base: Path, tmp_path: Path, fresh: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("sleep", "wake", "generate", "load_adapter"):
        method = getattr(ScriptedEngine, name)

        def recorded(self: Any, *args: Any, _name: str = name, _method: Any = method, **more: Any) -> Any:
            calls.append(_name)
            return _method(self, *args, **more)

        monkeypatch.setattr(ScriptedEngine, name, recorded)
    settings = EngineSettings("scripted", base, adapters=True, options={"script": f"{SCRIPTS}:named"})
    with OnPolicySampler(
        lambda: ScriptedEngine(settings), base_tokenizer(base), 64, folder=AdapterFolder(tmp_path)
    ) as sampler:
        sampler.sync("policy", fresh())
        first = sampler.sample([ask("policy"), ask()])
        sampler.sleep()
        sampler.sleep()
        assert sampler.sample([ask("policy"), ask()]) == first
        sampler.sleep()
        sampler.sync("policy", fresh())
        assert Part.SLEEP in sampler.parts.take()
        sampler.rest()
        assert calls[-1] == "load_adapter", "without a shared card there is no reason to sleep"
        sampler.share_card = True
        sampler.rest()
    once = ["load_adapter", "generate"]
    assert calls == [*once, "sleep", "wake", "generate", "sleep", "wake", "load_adapter", "sleep"]


def test_an_engine_that_can_not_sleep_says_so(base: Path, tmp_path: Path) -> None:
    class Bare:
        def load_adapter(self, name: str, path: Path) -> None: ...
        def generate(self, requests: Any, *, logprobs: bool = False) -> Any: ...
        def close(self) -> None: ...

    with (
        OnPolicySampler(lambda: Bare(), base_tokenizer(base), 64) as sampler,  # type: ignore[arg-type,return-value]
        pytest.raises(UsageError, match="Bare can't unload adapters or sleep"),
    ):
        sampler.sleep()
