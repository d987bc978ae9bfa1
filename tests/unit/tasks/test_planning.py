"""A plan and a run ask for the same stages.

Wrong if the key of a stage that stands on files of this machine alone is not the key that the run gives it, if a stage
that has to run is called cached, or if a plan leaves anything in the home folder.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from flows.commands import plan as command
from flows.commands import run
from reasoner.config.compose import load
from reasoner.config.smart import SmartConfig
from reasoner.home import Home
from reasoner.planning import calibration, device
from reasoner.planning.plan import Plan
from reasoner.records import ArtifactRef, Strategy
from reasoner.store import open_ref
from tasks import smart
from tasks.context import run_context
from tasks.stage import Stage

WORDS = [
    "engine=scripted", "engine.options.script=tests.support.solver:solve", "data.pool.word_problems.limit=40",
    "epochs=1",
    "few_shot.strategies=[cot]",
]  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("REASONER_HOME", str(tmp_path / "home"))
    return Home.from_environment()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder as far as a plan and a scripted engine look into it."""
    folder = tmp_path / "model"
    folder.mkdir()
    shape = {
        "num_hidden_layers": 1,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "vocab_size": 64,
    }
    (folder / "config.json").write_text(json.dumps(shape))
    (folder / "vocab.txt").write_text("a\nb\n")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


def planned(home: Home, model: Path, *more: str) -> Plan:
    return command.make("smart-demo", [f"model.path={model}", *WORDS, *more], home, "cpu", benchmark=False)


def test_a_run_plans_with_the_processor_that_it_runs_on(
    home: Home, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "here", device.unmeasured_cpu)
    made = run.predicted("smart-demo", [f"model.path={model}", *WORDS], home)
    found = calibration.read(home.path)
    assert made is not None and made.basis.startswith("processor measured")
    assert found is not None and found.device.is_cpu and found.device.flops != device.unmeasured_cpu().flops


def keep(home: Home, one: Stage, **arguments: Any) -> ArtifactRef:
    """Compute a stage without Prefect and keep its result as Prefect does."""
    with run_context("made"):
        ref = one.run(arguments)
    home.results.mkdir(parents=True, exist_ok=True)
    row = {"metadata": {}, "result": json.dumps(ref.to_row())}
    (home.results / one.key(arguments)).write_text(json.dumps(row))
    return ref


def test_keys_and_states_are_those_of_the_run(home: Home, model: Path) -> None:
    before = {step.label: step for step in planned(home, model).steps}
    assert {found.name for found in home.path.glob("*")} <= {"prefect"}, "a plan leaves nothing"
    assert {step.state for step in before.values()} == {"to run"}

    config = load("smart-demo", [f"model.path={model}", *WORDS], SmartConfig)
    problems = keep(home, smart.prepare_problems, data=config.data, seed=config.seed)
    base = keep(home, smart.prepare_model, model=config.model)
    asked = {"problems": problems, "model": base, "strategy": Strategy.COT, "shard": 0,
             "few_shot": config.few_shot, "engine": config.engine, "seed": config.seed}  # fmt: skip
    for split in ("pool", "eval-held-out"):
        assert before[f"few-shot cot {split}"].key == smart.few_shot.key({**asked, "split": split})
    shown = keep(home, smart.few_shot, **asked, split="pool")

    after = planned(home, model)
    assert [step.label for step in after.steps] == list(before)
    assert {s.label for s in after.steps if s.state == "cached"} == {"problems", "model", "few-shot cot pool"}
    assert before["contamination"].key in {step.key for step in after.steps}

    changed = {step.label: step for step in planned(home, model, "few_shot.shots=3").steps}
    assert changed["few-shot cot pool"].reason == "inputs changed: few_shot.shots"
    assert changed["few-shot cot eval-held-out"].state == "to run", (
        "another split is not this one made before"
    )

    (home.results / smart.few_shot.key({**asked, "split": "pool"})).rename(home.path / "result")
    forgotten = {step.label: step for step in planned(home, model).steps}
    assert forgotten["few-shot cot pool"].reason == "its cached result was removed"
    (home.path / "result").rename(home.results / smart.few_shot.key({**asked, "split": "pool"}))
    (open_ref(shown) / "completions.jsonl").write_text("altered")
    gone = {step.label: step for step in planned(home, model).steps}["few-shot cot pool"]
    assert (gone.state, gone.reason) == ("stale", "its artifact is gone or altered")


def test_a_model_that_is_no_model_is_left_to_the_run(home: Home, model: Path) -> None:
    (model / "model.safetensors").unlink()
    found = {step.label: step for step in planned(home, model).steps}
    assert found["model"].state == "to run" and "few-shot cot pool" in found
