"""GRPO by several processes: the completions, rewards and losses of one, and each goes on with the other's work.

Wrong if a process samples by itself, if a group is torn, if a step has other completions than those of one process, or
if a checkpoint of two can't be gone on from by one. With two engines beside: wrong if one of them is not asked or gets
other adapters than the other, or if too few cards are found out after the start.
"""

import functools
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reasoner.engines.start import open_engine
from reasoner.errors import ConfigurationError, InfrastructureError
from reasoner.training import checkpoints
from reasoner.training.adapter import TRAINING, WEIGHTS
from reasoner.training.grpo import sampling
from reasoner.training.grpo.journal import EXAMPLES, METRICS, read_rows
from reasoner.training.planner import grpo
from reasoner.training.planner.launch import run_grpo
from reasoner.training.planner.spec import PlannerGrpoSpec
from tests.unit.training.planner.planning import learnt_to_plan, make_grpo

pytestmark = pytest.mark.timeout(1200)
SETTINGS: dict[str, Any] = {
    "max_steps": 3,
    "lr": 1e-3,
    "batch_size": 2,
    "grad_accum": 6,
    "num_generations": 4,
}
"""Three groups of four a step: of two processes each has half of the second."""


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, None, str]:
    return learnt_to_plan(tmp_path_factory.mktemp("planner"))


def here(spec: PlannerGrpoSpec) -> None:
    """In this process, with its engine in it, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sampling, "open_engine", functools.partial(open_engine, in_process=True))
        grpo.train(spec, lambda **_: None, lambda _: None)


@pytest.fixture(scope="module")
def one(planner: tuple[Path, None, str], tmp_path_factory: pytest.TempPathFactory) -> PlannerGrpoSpec:
    spec = make_grpo(*planner, tmp_path_factory.mktemp("one"), **SETTINGS)
    here(spec)
    return spec


@pytest.fixture(scope="module")
def two(planner: tuple[Path, None, str], tmp_path_factory: pytest.TempPathFactory) -> PlannerGrpoSpec:
    """Two processes on the CPU, which speak through gloo."""
    room = tmp_path_factory.mktemp("two")
    spec = replace(make_grpo(*planner, room, **SETTINGS), processes=2)
    reports: list[dict[str, Any]] = []
    run_grpo(spec, room / "log", reports.append)
    assert [r["done"] for r in reports] == [1, 2, 3], "one process reports"
    return spec


PLANNED = ("step", "problem_id", "planner", "valid", "decomposed", "correct")


def examples(spec: PlannerGrpoSpec) -> list[dict[str, Any]]:
    """Without what may round: independence, and the worker's words on parts, which it has not learnt to solve."""
    return [{name: row[name] for name in PLANNED} for row in read_rows(spec.output / EXAMPLES)]


def require_the_same(found: PlannerGrpoSpec, wanted: PlannerGrpoSpec) -> None:
    from safetensors.torch import load_file

    rows, expected = (read_rows(spec.output / METRICS) for spec in (found, wanted))
    assert [row["step"] for row in rows] == [row["step"] for row in expected] == [1, 2, 3]
    for row, one_row in zip(rows, expected, strict=True):
        for name in ("loss", "grad_norm", "reward", *(n for n in one_row if n.startswith("planner/"))):
            assert row[name] == pytest.approx(one_row[name], rel=1e-3, abs=1e-5), (row["step"], name)
    assert examples(found) == examples(wanted)
    a, b = (load_file(spec.output / WEIGHTS) for spec in (found, wanted))
    apart = sum(float((a[name] - b[name]).square().sum()) for name in a)
    moved = sum(float(b[name].square().sum()) for name in b if "lora_B" in name)
    assert moved > 0 and apart < 1e-3 * moved


def test_two_processes_learn_what_one_does(one: PlannerGrpoSpec, two: PlannerGrpoSpec) -> None:
    assert any(row["grad_norm"] > 0 for row in read_rows(one.output / METRICS)), "something was learnt"
    require_the_same(two, one)
    facts = json.loads((two.output / TRAINING).read_text())
    assert facts["processes"] == 2 and facts["batch"] == {"size": 2, "accum": 3}
    assert "processes" not in json.loads((one.output / TRAINING).read_text())


def test_what_two_began_one_ends(one: PlannerGrpoSpec, two: PlannerGrpoSpec, tmp_path: Path) -> None:
    shutil.copytree(two.work, tmp_path / "work")
    for folder in checkpoints.all_checkpoints(tmp_path / "work"):
        if checkpoints.step_of(folder) > 1:
            shutil.rmtree(folder)
    spec = replace(two, work=tmp_path / "work", output=tmp_path / "out", processes=1)
    here(spec)
    assert json.loads((spec.work / "metrics.json").read_text())["resumed_from_step"] == 1
    require_the_same(spec, one)


def test_two_engines_sample_for_two_processes(planner: tuple[Path, None, str], tmp_path: Path) -> None:
    """The gate compares samples of both engines with the trainer, before the first update and after it."""
    from safetensors.torch import load_file

    spec = make_grpo(*planner, tmp_path, **SETTINGS | {"max_steps": 2})
    spec = replace(spec, processes=2, engines=2)
    run_grpo(spec, tmp_path / "log")
    rows = read_rows(spec.output / METRICS)
    assert [row["step"] for row in rows] == [1, 2] and any(row["grad_norm"] > 0 for row in rows)
    assert all(row["sampler_trainer_difference"] < 0.01 for row in rows)
    assert any(t.any() for name, t in load_file(spec.output / WEIGHTS).items() if "lora_B" in name), (
        "it moved"
    )
    assert {path.name for path in spec.work.glob("engine*.log")} == {"engine-0.log", "engine-1.log"}
    facts = json.loads((spec.output / TRAINING).read_text())
    assert (facts["processes"], facts["engines"]) == (2, 2)


def test_too_few_cards_are_told_before_anything_starts(
    planner: tuple[Path, None, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reasoner.hardware.visible_devices", lambda: ["0"])
    spec = replace(make_grpo(*planner, tmp_path, **SETTINGS), engines=2)
    with pytest.raises(InfrastructureError, match=r"2 engines of 1 devices need 2; 1 are visible"):
        run_grpo(spec, tmp_path / "log")
    assert not (tmp_path / "log").exists()


def test_a_server_and_a_4_bit_base_are_one_whatever_is_asked_for(tmp_path: Path) -> None:
    served = make_grpo(tmp_path, None, "", tmp_path, server={"url": "http://other:8000"}, engines=2)
    quantised = make_grpo(tmp_path, None, "", tmp_path, load_in_4bit=True, engines=2)
    assert (served.samplers, quantised.samplers) == (0, 0)


def test_a_step_that_can_not_be_shared_is_told(planner: tuple[Path, None, str], tmp_path: Path) -> None:
    spec = replace(make_grpo(*planner, tmp_path, **SETTINGS), processes=5)
    with pytest.raises(
        ConfigurationError, match=r"12 records .* by 5 processes; .* one of 1, 2, 3, 4, 6, 12"
    ):
        run_grpo(spec, tmp_path / "log")
