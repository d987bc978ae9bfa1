"""Training that samples as it goes, with the engine on another machine: vLLM's server with a copy of the base there.

Wrong if anything but the adapter travels, if an engine starts here, if the samples are not of the policy that is
trained, if a server that was away ends the training, or if an adapter stays behind on the server.
"""

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from reasoner.config.smart import EngineConfig
from reasoner.config.training import ServerConfig
from reasoner.engines.adapters import CONFIG, WEIGHTS
from reasoner.errors import ConfigurationError, EngineError
from reasoner.store.rows import read_rows
from reasoner.training.grpo.journal import METRICS
from reasoner.training.multiturn.launch import run_multiturn
from reasoner.training.planner.launch import run_grpo
from tests.support import signal
from tests.support.vllm_server import KEY, OtherMachine
from tests.unit.training.planner.planning import learnt_to_plan, make_grpo

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]
ENGINE = EngineConfig(kind="vllm", dtype="float32", options={"max_model_len": 256})


def adapters_on(machine: OtherMachine) -> list[str]:
    answer = httpx.get(f"{machine.config.url}/v1/models", headers={"Authorization": f"Bearer {KEY}"})
    return [card["id"] for card in answer.json()["data"] if card["id"] != "base"]


def weights(folder: Path) -> dict[str, Any]:
    from safetensors.torch import load_file

    return load_file(folder / WEIGHTS)


def require_adapters_alone(machine: OtherMachine, work: Path) -> None:
    assert machine.seen == {CONFIG, WEIGHTS}, "nothing but adapters travels"
    assert not list(machine.shared.iterdir()) and not adapters_on(machine), "and nothing stays behind"
    assert not (work / "engine.log").exists(), "no engine was started here"


def test_grpo_of_the_planner_with_its_engine_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planner and worker are both asked there. After the second step the machine is switched off and on again."""
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    base, _, prompts = learnt_to_plan(tmp_path)
    with OtherMachine(tmp_path / "other", base) as machine:
        spec = make_grpo(base, None, prompts, tmp_path / "here", max_steps=4, server=machine.config)
        spec = replace(spec, engine=ENGINE)

        def interrupt(facts: dict[str, Any]) -> None:
            if facts["done"] == 2:
                machine.stop()
                machine.start()

        done = run_grpo(spec, tmp_path / "log", interrupt)
        require_adapters_alone(machine, spec.work)
    rows = read_rows(spec.output / METRICS)
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    assert done.metrics["engine_restarts"] == 1, "the server that came back got its adapter again"
    assert all(row["sampler_trainer_difference"] < 0.05 for row in rows), (
        "the samples are of the present policy"
    )
    # Of all 32 plans, since a step has 8 and at this rate the policy may forget in one.
    assert (
        sum(row["planner/valid"] for row in rows) > 0
        and sum(row["planner/worker_tokens"] for row in rows) > 0
    )
    assert sum(row["planner/correct"] for row in rows) > 0, "planner and worker know the base by heart"
    assert any(w.any() for name, w in weights(spec.output).items() if "lora_B" in name), "B begins as zero"


@pytest.mark.long
def test_a_multi_turn_training_with_its_engine_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two adapters travel. Two processes train; the first of them samples."""
    monkeypatch.setenv("VLLM_API_KEY", KEY)
    base = signal.make_ready(tmp_path / "base")
    with OtherMachine(tmp_path / "other", base) as machine:
        server = {"processes": 2, "server": machine.config.model_dump()}
        spec = signal.spec(
            tmp_path / "here", base, "hint", iterations=3, lm_lr=1e-2, guidance_lr=1e-2,
            engine=ENGINE.model_dump(), compute=server, precision="fp32",
        )  # fmt: skip
        run_multiturn(spec, tmp_path / "log")
        require_adapters_alone(machine, spec.work)
    rows = read_rows(spec.output / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["logprob_difference"] < 0.05 for row in rows)
    for part in ("solver", "guidance"):
        assert any(w.any() for name, w in weights(spec.output / part).items() if "lora_B" in name)


def test_what_can_not_be_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from reasoner.onpolicy import served
    from reasoner.onpolicy.opening import adapters_for, open_server
    from reasoner.workbench import ModelFolder, engine_settings
    from tests.support.tiny_llama import make_byte_model

    model = ModelFolder(make_byte_model(tmp_path / "base"), "f", "tiny")
    with pytest.raises(ConfigurationError, match="missing is no folder that can be written"):
        adapters_for(ServerConfig(url="http://there:1", adapters=str(tmp_path / "missing")))
    with pytest.raises(ConfigurationError, match=r"engine\.kind=transformers; set engine=vllm"):
        there = ServerConfig(url="http://127.0.0.1:9")
        open_server(there, engine_settings(model, EngineConfig(kind="transformers")))
    # That module's clock alone: the threads of this process have one of their own.
    hurried = SimpleNamespace(monotonic=iter(range(0, 10_000, 400)).__next__, sleep=time.sleep)
    monkeypatch.setattr(served, "time", hurried)
    with pytest.raises(EngineError, match=r"no server at http://127\.0\.0\.1:9 within 300 s"):
        open_server(there, engine_settings(model, ENGINE))


@pytest.mark.parametrize("url", ["there:8000", "http://there:8000/v1", "http://there:8000/v1/"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"compute\.server\.url"):
        ServerConfig(url=url)


def test_where_is_sampled_is_in_no_key() -> None:
    from reasoner.config import compose
    from reasoner.config.multiturn import MultiTurnConfig
    from reasoner.config.planner import PlannerConfig
    from reasoner.ids import content_hash
    from reasoner.report.html.sources import derived_sections

    there = [
        "compute.one_card=true",
        "compute.server.url=http://there:8000",
        "compute.server.adapters=/shared/adapters",
    ]
    here, away = (
        compose.load("planner-grpo", words, PlannerConfig) for words in (["compute.one_card=true"], there)
    )
    assert here.grpo_here.share_card and not away.grpo_here.share_card, (
        "nobody shares a card with a server elsewhere"
    )
    assert away.grpo_here.server.url == "http://there:8000"
    assert content_hash(here.grpo_here) == content_hash(away.grpo_here)
    assert away.grpo_here.model_dump(mode="json") in derived_sections("planner", away.model_dump(mode="json"))
    one, other = (
        compose.load("mlmt-math", words, MultiTurnConfig) for words in (["compute.one_card=true"], there)
    )
    assert one.learned().compute.shares_card and not other.learned().compute.shares_card
    assert content_hash(one.learned()) == content_hash(other.learned())
    assert (
        json.loads(other.learned().model_dump_json())["compute"]["server"]["adapters"] == "/shared/adapters"
    )
    assert other.learned().model_dump(mode="json") in derived_sections(
        "multiturn", other.model_dump(mode="json")
    )
