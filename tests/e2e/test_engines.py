"""Real engines on a tiny model: vLLM in a process of its own, transformers in this one.

Wrong if the engines disagree on greedy tokens or log-probabilities, if a request is lost or answered
twice, if an adapter leaks into the base or old weights survive a reload, if samples repeat, or if a death
goes unnoticed.
"""

import dataclasses
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.protocol import Engine, EngineSettings
from reasoner.engines.remote import RemoteEngine
from reasoner.engines.start import build_engine, open_engine
from reasoner.engines.vllm_settings import is_cpu_build, set_environment
from reasoner.engines.vllm_worker import PINNING
from reasoner.errors import ConfigurationError, EngineError, ModelError
from reasoner.records import Completion, GenerationRequest, Sampling
from tests.support.tiny_llama import make_adapter, make_byte_model
from tests.unit.engines.test_remote import ROOT, gone

pytestmark = pytest.mark.e2e

LENGTH = 256
PROMPT = "A farmer has twelve cows and buys three more; how many cows has the farmer now?"
"""Longer than two blocks of the prefix cache."""
ENGINES = ["vllm", "transformers"]


def ask(
    prompt: str = PROMPT, *, temperature: float = 0.0, tokens: int = 16, **more: Any
) -> GenerationRequest:
    sampling = Sampling(
        temperature, max_tokens=tokens, stop=more.pop("stop", ()), choices=more.pop("choices", ())
    )
    return GenerationRequest(more.pop("problem", "p"), prompt, sampling, **more)


def answers(engine: Engine, requests: list[GenerationRequest], **more: Any) -> list[Completion]:
    """The completions in the order of the requests, after a check that each came exactly once."""
    got = list(engine.generate(requests, **more))
    assert sorted(i for i, _ in got) == list(range(len(requests)))
    return [completion for _, completion in sorted(got, key=lambda pair: pair[0])]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_byte_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def adapters(tiny: Path) -> list[Path]:
    return [make_adapter(tiny, tiny.parent / f"adapter{seed}", seed=seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def engines(tiny: Path) -> Iterator[dict[str, Engine]]:
    options = {"max_model_len": LENGTH}
    vllm = EngineSettings("vllm", tiny, "float32", 3, adapters=True, options={**options, "max_num_seqs": 8})
    torch = EngineSettings(
        "transformers", tiny, "float32", 3, adapters=True, options={**options, "batch_size": 8}
    )
    opened = {
        "vllm": open_engine(vllm, log=tiny.parent / "engine.log"),
        "transformers": open_engine(torch, log=tiny.parent / "unused", in_process=True),
    }
    assert isinstance(opened["vllm"], RemoteEngine)
    yield opened
    for engine in opened.values():
        engine.close()


def test_both_engines_write_the_same_greedy_tokens(engines: dict[str, Engine]) -> None:
    requests = [ask(f"{PROMPT[: 10 + 3 * i]} {i}", tokens=8 + i) for i in range(24)]
    vllm, torch = (answers(engines[name], requests, logprobs=True) for name in ENGINES)
    same = [(a, b) for a, b in zip(vllm, torch, strict=True) if a.token_ids == b.token_ids]
    assert len(same) >= 22
    for a, b in same:
        assert (a.text, a.finish, a.prompt_tokens) == (b.text, b.finish, b.prompt_tokens)
        assert a.completion_tokens == len(a.token_ids) == len(a.logprobs)
        assert a.logprobs == pytest.approx(b.logprobs, abs=2e-3)
    assert {c.completion_tokens for c in vllm if c.finish == "length"} >= {8, 31}
    bare = answers(engines["vllm"], requests[:1])[0]
    assert (bare.token_ids, bare.logprobs, bare.text) == ((), (), vllm[0].text)


@pytest.mark.parametrize("name", ENGINES)
def test_an_end_token_counts_and_is_not_text(name: str, engines: dict[str, Engine]) -> None:
    drawn = answers(
        engines[name], [ask(temperature=1.5, tokens=40, index=i) for i in range(40)], logprobs=True
    )
    ended = [c for c in drawn if c.finish == "stop"]
    assert ended, "no sample of a random model ended, which 6 of 40 should"
    for c in ended:
        assert (c.token_ids[-1], 1 in c.token_ids[:-1], "</s>" in c.text) == (1, False, False)
        assert c.completion_tokens == len(c.token_ids) == len(c.logprobs) <= 40


def test_text_made_at_the_end_is_the_one_that_vllm_writes(engines: dict[str, Engine]) -> None:
    """Random bytes: halves of characters within and at the end, special tokens, end tokens. With a stop string, which
    never comes, vLLM writes the text itself; the seed of a call does not go by it."""
    late, own = (
        answers(
            engines["vllm"],
            [ask(temperature=1.5, tokens=40, index=i, stop=stop) for i in range(120)],
            logprobs=True,
        )
        for stop in ((), ("no such words come from a random model",))
    )
    assert [c.token_ids for c in late] == [c.token_ids for c in own]
    assert [c.text for c in late] == [c.text for c in own]
    assert sum("\ufffd" in c.text for c in late) >= 20 and {c.finish for c in late} == {"stop", "length"}


@pytest.mark.parametrize("name", ENGINES)
def test_special_tokens_are_added_only_where_wanted(name: str, engines: dict[str, Engine]) -> None:
    on, off = answers(engines[name], [ask(), ask(add_special_tokens=False)])
    assert (on.prompt_tokens, off.prompt_tokens) == (len(PROMPT) + 1, len(PROMPT))


@pytest.mark.parametrize("name", ENGINES)
def test_stop_strings_end_a_completion_and_are_cut_off(name: str, engines: dict[str, Engine]) -> None:
    prompts = [f"{i} {PROMPT}" for i in range(12)]
    free = answers(engines[name], [ask(p, tokens=32) for p in prompts], logprobs=True)
    stops = []
    for c in free:
        letters = [ch for ch in c.text[3:-3] if ch.isascii() and ch.isprintable() and ch != " "]
        stops.append(letters[0] if letters else "no stop")
    cut = answers(
        engines[name],
        [ask(p, tokens=32, stop=("??", s)) for p, s in zip(prompts, stops, strict=True)],
        logprobs=True,
    )
    stopped = 0
    for whole, part, stop in zip(free, cut, stops, strict=True):
        if stop in whole.text and part.token_ids == whole.token_ids[: len(part.token_ids)]:
            assert part.text == whole.text[: whole.text.index(stop)]
            assert part.finish == "stop"
            assert part.completion_tokens == len(part.token_ids) < len(whole.token_ids)
            stopped += 1
    assert stopped >= 8


@pytest.mark.parametrize("name", ENGINES)
def test_a_choice_is_one_of_those_given_and_ends_there(name: str, engines: dict[str, Engine]) -> None:
    """Beside free requests in one batch; a random model would never spell a name by itself."""
    names, others = ("Sub-questioning:", "Program of Thought:"), ("Pro", "Chain of Thought:")
    requests = [ask(temperature=1.0, tokens=32, index=i, choices=names) for i in range(96)]
    requests[1::3] = [ask(temperature=1.0, tokens=32, index=i) for i in range(1, 96, 3)]
    requests[2::3] = [ask(temperature=1.0, tokens=32, index=i, choices=others) for i in range(2, 96, 3)]
    drawn = answers(engines[name], requests)
    texts = [c.text for c in drawn]
    assert set(texts[0::3]) == set(names) and set(texts[2::3]) <= set(others)
    assert not set(texts[1::3]) & {*names, *others}
    assert all(c.finish == "stop" for c in [*drawn[0::3], *drawn[2::3]])
    assert {c.text for c in answers(engines[name], [ask(tokens=32, choices=names[:1])])} == {names[0]}


@pytest.mark.parametrize("name", ENGINES)
def test_samples_are_independent_and_repeatable(name: str, engines: dict[str, Engine]) -> None:
    def draw(start: int) -> list[str]:
        requests = [ask(temperature=1.0, index=i) for i in range(start, start + 8)]
        return [c.text for c in answers(engines[name], requests)]

    first = draw(0)
    assert len(set(first)) == 8
    assert draw(0) == first
    # A fixed engine seed alone would give a resumed run the same texts again.
    assert not set(draw(8)) & set(first)


@pytest.mark.parametrize("name", ENGINES)
def test_logprobs_are_those_of_the_distribution_that_was_sampled(
    name: str, engines: dict[str, Engine], tiny: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    loader: Any = AutoModelForCausalLM
    model, tokenizer = (
        loader.from_pretrained(str(tiny), dtype=torch.float32),
        AutoTokenizer.from_pretrained(str(tiny)),
    )
    requests = [ask(temperature=t, index=i) for i, t in enumerate([0.7, 1.0, 1.3, 0.0])]
    for request, c in zip(requests, answers(engines[name], requests, logprobs=True), strict=True):
        prompt = tokenizer(request.prompt)["input_ids"]
        with torch.inference_mode():
            logits_TV = model(torch.tensor([[*prompt, *c.token_ids]])).logits[0, len(prompt) - 1 : -1]
        scaled = torch.log_softmax(logits_TV / (request.sampling.temperature or 1.0), -1)
        expected = scaled.gather(-1, torch.tensor(c.token_ids)[:, None])[:, 0].tolist()
        assert c.logprobs == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("name", ENGINES)
def test_adapters_change_their_requests_only_and_a_reload_serves_new_weights(
    name: str, engines: dict[str, Engine], adapters: list[Path], tmp_path: Path
) -> None:
    engine = engines[name]
    prompts = [f"{PROMPT} {i}" for i in range(8)]
    base = [ask(p) for p in prompts]
    policy = [ask(p, adapter="policy") for p in prompts]

    def texts(requests: list[GenerationRequest]) -> list[str]:
        return [c.text for c in answers(engine, requests)]

    alone = texts(base)
    folder = shutil.copytree(adapters[0], tmp_path / "adapter")
    engine.load_adapter("policy", folder)
    first = texts(policy)
    assert sum(a != b for a, b in zip(first, alone, strict=True)) == 8
    mixed = texts([r for pair in zip(base, policy, strict=True) for r in pair])
    assert sum(a == b for a, b in zip(mixed[::2], alone, strict=True)) >= 7
    assert sum(a == b for a, b in zip(mixed[1::2], first, strict=True)) >= 7

    engine.load_adapter("other", adapters[1])
    second = texts([ask(p, adapter="other") for p in prompts])
    assert sum(a != b for a, b in zip(first, second, strict=True)) == 8
    # The same name and folder, overwritten: neither weights nor cached prefixes may be the old ones.
    shutil.copytree(adapters[1], folder, dirs_exist_ok=True)
    engine.load_adapter("policy", folder)
    assert sum(a == b for a, b in zip(texts(policy), second, strict=True)) >= 7
    engine.load_adapter("policy", adapters[0])
    assert sum(a == b for a, b in zip(texts(policy), first, strict=True)) >= 7
    assert sum(a == b for a, b in zip(texts(base), alone, strict=True)) >= 7


@pytest.mark.parametrize("name", ENGINES)
def test_200_mixed_requests_are_each_answered_once(
    name: str, engines: dict[str, Engine], adapters: list[Path]
) -> None:
    engine = engines[name]
    engine.load_adapter("a", adapters[0])
    engine.load_adapter("b", adapters[1])
    requests = [
        ask(
            PROMPT[: 5 + i % 60] + str(i // 4),
            temperature=(0.0, 1.0)[i % 2],
            tokens=1 + i % 13,
            stop=() if i % 3 else ("e", "a"),
            adapter=("", "a", "b")[i % 3],
            index=i % 4,
            add_special_tokens=i % 5 > 0,
        )
        for i in range(200)
    ]
    for request, c in zip(requests, answers(engine, requests), strict=True):
        assert c.finish in ("stop", "length")
        assert 1 <= c.completion_tokens <= request.sampling.max_tokens
        assert c.prompt_tokens == len(request.prompt) + request.add_special_tokens


@pytest.mark.parametrize("name", ENGINES)
def test_a_prompt_that_is_too_long_is_refused_before_anything_is_made(
    name: str, engines: dict[str, Engine]
) -> None:
    requests = [ask(), ask("x" * (LENGTH - 1), problem="long")]
    with pytest.raises(EngineError, match=rf"problem long: the prompt has {LENGTH} tokens .*max_model_len"):
        next(iter(engines[name].generate(requests)))
    longest = answers(engines[name], [ask("x" * (LENGTH - 6), tokens=50)])[0]
    assert (longest.prompt_tokens, longest.finish) == (LENGTH - 5, "length")
    assert longest.completion_tokens == 5


@pytest.mark.parametrize("name", ENGINES)
def test_an_abandoned_generation_leaves_the_engine_as_it_was(name: str, engines: dict[str, Engine]) -> None:
    expected = answers(engines[name], [ask()])
    running: Any = engines[name].generate([ask(f"{i}", tokens=100) for i in range(64)])
    next(running)
    running.close()
    assert answers(engines[name], [ask()]) == expected


@pytest.mark.parametrize("name", ENGINES)
def test_adapters_that_do_not_fit_are_refused(
    name: str, engines: dict[str, Engine], adapters: list[Path], tmp_path: Path
) -> None:
    odd = shutil.copytree(adapters[0], tmp_path / "odd")
    config = json.loads((odd / "adapter_config.json").read_text())
    (odd / "adapter_config.json").write_text(json.dumps({**config, "r": 64}))
    with pytest.raises(ModelError, match="rank 64"):
        engines[name].load_adapter("odd", odd)
    (odd / "adapter_config.json").write_text(json.dumps(config))
    (odd / "adapter_model.safetensors").write_bytes(b"no tensors")
    with pytest.raises(ModelError, match="'odd'"):
        engines[name].load_adapter("odd", odd)
    with pytest.raises(EngineError, match="'odd' is not loaded"):
        list(engines[name].generate([ask(adapter="odd")]))
    assert answers(engines[name], [ask()])


@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_that_cannot_start_says_why(kind: str, tiny: Path, tmp_path: Path) -> None:
    wrong = EngineSettings(kind, tiny, options={"max_modellen": 5})
    with pytest.raises(ConfigurationError, match="'max_modellen'; the nearest is 'max_model_len'"):
        open_engine(wrong, log=tmp_path / "log")
    broken = shutil.copytree(tiny, tmp_path / "broken")
    (broken / "model.safetensors").unlink()
    with pytest.raises(
        EngineError, match=rf"the {kind} engine for {broken} failed to start: .*\(log: {tmp_path}"
    ):
        open_engine(EngineSettings(kind, broken), log=tmp_path / "log")


def test_vllm_runs_in_this_process_too(
    tiny: Path, engines: dict[str, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With adapters, none of which is pinned, whatever vLLM finds right."""
    set_environment(is_cpu_build())
    modules = [importlib.import_module(name) for name in PINNING]
    for module in modules:
        monkeypatch.setattr(module, "PIN_MEMORY", True)
    settings = EngineSettings("vllm", tiny, "float32", adapters=True, options={"max_model_len": LENGTH})
    engine = build_engine(settings)
    assert not any(module.PIN_MEMORY for module in modules)
    requests = [ask(f"{PROMPT} {i}") for i in range(8)]
    here, there = answers(engine, requests), answers(engines["vllm"], requests)
    engine.close()
    engine.close()
    assert sum(a == b for a, b in zip(here, there, strict=True)) >= 7


def test_a_killed_vllm_is_an_engine_error(engines: dict[str, Engine]) -> None:
    """Last: it ends the engine that the other tests share."""
    engine = engines["vllm"]
    assert isinstance(engine, RemoteEngine)
    requests = [ask(f"{i}", tokens=200) for i in range(100)]
    requests.append(dataclasses.replace(requests[0], sampling=Sampling(max_tokens=1)))
    running = engine.generate(requests)
    next(running)
    assert engine.pid
    os.kill(engine.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"SIGKILL.*engine\.log"):
        list(running)
    assert not engine.usable


PARENT = """
import sys
from pathlib import Path
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.remote import RemoteEngine
from reasoner.records import GenerationRequest, Sampling
settings = EngineSettings("vllm", Path(sys.argv[1]), "float32", options={"max_model_len": 256})
engine = RemoteEngine(settings, log=Path(sys.argv[2]))
sampling = Sampling(temperature=1.0, max_tokens=200)
running = engine.generate([GenerationRequest("p", f"{i}", sampling) for i in range(2000)])
next(running)
print(engine.pid, flush=True)
list(running)
"""


def test_vllm_dies_with_a_killed_parent(tiny: Path, tmp_path: Path) -> None:
    argv = [sys.executable, "-c", PARENT, str(tiny), str(tmp_path / "log")]
    parent = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout
    pid = int(parent.stdout.readline())
    assert not gone(pid, 0.2)
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert gone(pid, 10)
