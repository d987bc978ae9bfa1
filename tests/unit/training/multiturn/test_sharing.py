"""One card for trainer and engine: the engine sleeps while the optimiser works, and is awake to sample.

Wrong if an update runs beside a waking engine, if a sleeping engine is asked to sample, if the engine sleeps without
being told that there is one card, or if that changes what is learned.
"""

import functools
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.start import open_engine
from reasoner.onpolicy.parts import Parts
from reasoner.store.rows import read_rows
from reasoner.training.multiturn import sampling
from reasoner.training.multiturn.loop import EPISODES, Loop
from reasoner.training.multiturn.optimiser import Optimiser
from tests.support.signal import write_templates
from tests.support.sleeping import asleep_through_every_step, never_asleep, watch
from tests.unit.training.multiturn.conftest import PROBLEMS, build, config


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of engine and optimiser, in their order; the engine runs in this process."""
    monkeypatch.setattr(sampling, "open_engine", functools.partial(open_engine, in_process=True))
    return watch(monkeypatch, Optimiser)


def run(base: Path, tokenizer: Any, processes: Any, work: Path, **fields: Any) -> list[Any]:
    work.mkdir()
    prompts = str(write_templates(work / "prompts.yaml", "hint"))
    fields |= {
        "iterations": 2,
        "eval_freq": 5,
        "engine": {"kind": "transformers", "options": {}},
        "prompts": prompts,
    }
    settings, problems, parts = config(**fields), list(PROBLEMS.values()), Parts()
    with sampling.open_sampler(settings, base, None, work, 512, parts) as sampler:
        learned = build(base, tokenizer, processes, **fields)
        Loop(settings, work, learned, processes, problems, problems, sampler, lambda **_: None, lambda _: None,
             parts).run()  # fmt: skip
    return [tokens(read_rows(path)) for path in sorted((work / EPISODES).iterdir())]


def tokens(row: Any) -> list[Any]:
    """The sampled tokens in some episodes."""
    if isinstance(row, list):
        return [found for part in row for found in tokens(part)]
    if isinstance(row, dict):
        own = [row["token_ids"]] if "token_ids" in row else []
        return own + [found for part in row.values() if isinstance(part, dict) for found in tokens(part)]
    return []


@pytest.mark.parametrize("method", ["mlmt", "archer"])
def test_the_engine_sleeps_through_every_update(
    method: str, base: Path, tokenizer: Any, processes: Any, tmp_path: Path, calls: list[str]
) -> None:
    fields: dict[str, Any] = {"method": method, "kl": "loss" if method == "mlmt" else "reward"}
    if method == "archer":
        fields |= {
            "train_guidance_model": False,
            "use_smart_corrections": False,
            "epochs": 1,
            "warmup_iter": 0,
        }
    shared = run(base, tokenizer, processes, tmp_path / "shared", compute={"one_card": True}, **fields)
    assert asleep_through_every_step(calls) and {"wake", "generate"} <= set(calls), calls
    calls.clear()
    assert any(shared) and run(base, tokenizer, processes, tmp_path / "apart", **fields) == shared
    assert never_asleep(calls), calls


def test_two_engines_take_turns_with_the_updates_too(
    base: Path, tokenizer: Any, processes: Any, tmp_path: Path, calls: list[str]
) -> None:
    """Both are told to sleep and to wake; the gate compares their samples with the trainer in every iteration."""
    compute = {"one_card": True, "engines": 2}
    assert any(run(base, tokenizer, processes, tmp_path / "two", compute=compute, method="mlmt", kl="loss"))
    assert all(calls.count(name) % 2 == 0 for name in ("load_adapter", "sleep", "wake"))
    assert asleep_through_every_step(in_pairs(calls)), calls


def in_pairs(calls: list[str]) -> list[str]:
    """The calls of one of two engines that are told the same; who generates goes by the requests."""
    found: list[str] = []
    for call in calls:
        if call in ("generate", "step") or found[-1:] != [call]:
            found.append(call)
    return found


def test_a_server_is_one_engine_whatever_is_asked_for() -> None:
    assert config(compute={"engines": 3}).samplers == 3
    assert config(compute={"engines": 3, "server": {"url": "http://other:8000"}}).samplers == 0


def test_who_holds_the_card_is_no_part_of_what_is_learned() -> None:
    from reasoner.ids import content_hash

    apart, shared = config(), config(compute={"one_card": True, "engines": 2})
    assert shared.learned().compute.one_card and not apart.learned().compute.one_card
    assert shared.learned().compute.engines == 2, "the training is told"
    assert content_hash(apart.learned()) == content_hash(shared.learned())
