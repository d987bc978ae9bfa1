"""GRPO on top of SMART's last epoch, on a real server with a tiny model that has learnt to answer.

Wrong if the step is not asked for and something changes, if its model is the epoch's, if its answers stand in no row or
are tested against nothing, if it is not the run's result, or if a killed training begins anew.
"""

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from flows.smart import smart
from reasoner.home import Home
from reasoner.problems.telling import pass_rates
from reasoner.prompts import few_shot_prompt, load_exemplars
from reasoner.records import ArtifactRef, Strategy
from reasoner.report.html.build import build
from reasoner.sandbox import Sandbox
from reasoner.stages.problems import read as read_problems
from reasoner.stages.report import read as read_report
from reasoner.stages.verdicts import read as read_verdicts
from reasoner.store import Store, open_ref
from reasoner.store.manifest import Manifest
from tests.flows.test_kill import SECONDS, digests, kill_when
from tests.support.commands import start
from tests.support.graph import check_edges
from tests.support.tiny_llama import make_model
from tests.unit.training.planner.planning import teach
from tests.unit.training.smart.policy import lessons, problems

pytestmark = [pytest.mark.flows, pytest.mark.timeout(900)]
QUESTIONS = 24
LAST = {"grpo": "grpo", "merge": "merge grpo"}
GRPO = ("grpo.enabled=true", "grpo.max_steps=3", "grpo.save_steps=1", "grpo.logging_steps=1", "grpo.lr=1e-2",
        "grpo.batch_size=8", "grpo.grad_accum=2", "grpo.num_generations=4", "grpo.max_prompt_length=128",
        "grpo.max_completion_length=48", "grpo.precision=fp32", "grpo.lora.r=4")  # fmt: skip


@pytest.fixture(scope="module")
def world(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return overrides_of(tmp_path_factory.mktemp("world"))


def overrides_of(folder: Path) -> list[str]:
    """For a base, made in `folder`, that solves in prose when shown examples, and names a strategy when it chooses."""
    base, exemplars = make_model(folder / "base"), load_exemplars("demo")
    asked = problems(QUESTIONS)
    shown = [(few_shot_prompt(exemplars, Strategy.COT, p.question, 0), f" The answer is {p.gold}.<|im_end|>")
             for p in asked]  # fmt: skip
    teach(base, [*shown, *lessons(base, QUESTIONS)], 400)
    rows = folder / "questions.jsonl"
    rows.write_text("".join(json.dumps({"question": p.question, "answer": p.gold}) + "\n" for p in asked))
    return [
        f"model.path={base}", "engine=transformers", "engine.options={max_model_len: 512, batch_size: 24}",
        "data=file", f"data.pool.mine.path={rows}", "data.held_out=0.3", "data.validation=0.2", "data.evaluation={}",
        "epochs=1", "few_shot.shots=0", "few_shot.decoding.max_tokens=24", "evaluation.decoding.max_tokens=48",
        "evaluation.max_invalid_prefix=0.5", "train.precision=fp32", "train.lr=1e-4", "train.min_records=4",
        "train.lora.r=4",
    ]  # fmt: skip


def manifests(home: Path) -> list[Manifest]:
    store = Store(home / "artifacts")
    return [store.manifest(ref) for ref in store.list()]


def made_by(home: Path, stage: str) -> Mapping[str, Manifest]:
    return {m.metadata["label"]: m for m in manifests(home) if m.metadata["stage"] == stage}


def test_it_adds_a_model_and_a_row_and_changes_nothing_before_it(home: Path, world: list[str]) -> None:
    more = smart("smart-demo", [*world, *GRPO])
    check_edges(home)
    after = digests(home)
    plain = smart("smart-demo", world)
    new = [m.metadata["label"] for m in manifests(home) if m.metadata["key"] not in after]
    assert sorted(new) == ["clean-scores", "evaluation held-out", "report"], "all other stages are shared"
    assert [row.label for row in read_report(open_ref(plain)).tables[0].rows][-1] == "epoch 1"
    assert "curves" not in json.loads((open_ref(plain) / "report.json").read_text())

    merged = made_by(home, "merge")
    adapter = made_by(home, "grpo")["grpo"]
    assert adapter.metadata["arguments"]["model"]["digest"] == merged["merge epoch 1"].digest
    assert merged["merge grpo"].metadata["arguments"]["model"]["digest"] == merged["merge epoch 1"].digest
    assert merged["merge grpo"].digest != merged["merge epoch 1"].digest
    answered = made_by(home, "answer")["answer grpo eval-held-out"]
    assert answered.metadata["arguments"]["model"]["digest"] == merged["merge grpo"].digest

    report = read_report(open_ref(more))
    rows = {row.label: row for row in report.tables[0].rows}
    assert list(rows)[-2:] == ["epoch 1", "grpo"]
    previous = rows["grpo"].previous
    assert (
        previous is not None and previous.against == "epoch 1" and previous.n == rows["grpo"].accuracy.n > 0
    )
    assert [curve.label for curve in report.curves] == ["grpo"] and len(report.curves[0].points) == 3
    assert {"reward", "pot", "tokens"} <= report.curves[0].points[0].keys()
    assert [r.label for r in report.records] == ["epoch 1"]
    assert [loss.label for loss in report.losses] == ["epoch 1", "grpo"]
    assert "## Reward: grpo" in (open_ref(more) / "report.md").read_text()

    results = {f: json.loads((f / "result.json").read_text()) for f in (home / "runs").iterdir()}
    folder = next(f for f, found in results.items() if found["report"]["digest"] == more.digest)
    assert results[folder]["model"]["digest"] == merged["merge grpo"].digest, "it is the run's result"
    page, collection = build(folder, Home(home))
    assert {"GRPO: reward", "GRPO: strategies"} <= {chart.title for chart in page.charts}
    assert "GRPO, responses while training" in {row.arm for row in collection.rows}

    both = digests(home)
    assert smart("smart-demo", [*world, *GRPO]) == more
    assert digests(home) == both

    # Questions that some of the policy's samples solve: the first epoch, which learnt from none, is sampled for it.
    low, high = 0.2, 0.8
    smart("smart-demo", [*world, *GRPO, f"grpo.pass_rate=[{low},{high}]", "epoch2.samples=6"])
    check_edges(home)
    (chosen,) = [m for m in manifests(home) if m.metadata["stage"] == "telling-questions"]
    (drawn,) = made_by(home, "sample").values()
    assert drawn.metadata["arguments"]["model"]["digest"] == merged["merge epoch 1"].digest
    store = Store(home / "artifacts")
    (judged,) = [
        ref for ref in store.list() if ref.digest == chosen.metadata["arguments"]["attempts"]["digest"]
    ]
    attempts = [a for a in read_verdicts([open_ref(judged)]) if a.scored]
    rates = pass_rates((a.problem_id, a.right) for a in attempts)
    asked = {p.id for p in read_problems(open_ref(problems_of(store)), "train")}
    within = {name for name in asked if low <= rates[name] <= high}
    assert 0 < len(within) == chosen.metadata["kept"] <= chosen.metadata["questions"] == len(asked)
    kept = [
        m.metadata["training"]["questions"]["kept"] for m in manifests(home) if m.metadata["stage"] == "grpo"
    ]
    assert sorted(kept) == sorted([len(asked), len(within)])


def problems_of(store: Store) -> ArtifactRef:
    (ref,) = [r for r in store.list() if store.manifest(r).metadata["stage"] == "problems"]
    return ref


@pytest.mark.crash
@pytest.mark.long
def test_killed_it_goes_on_from_its_checkpoint_to_the_same_model(tmp_path: Path, world: list[str]) -> None:
    calm, rough = tmp_path / "calm", tmp_path / "rough"

    def begin(home: Path, *more: str) -> tuple[subprocess.Popen[bytes], Path]:
        log = tmp_path / f"{home.name}.log"
        return start(home, "run", "smart-demo", *world, *more, log=log), log

    def finish(home: Path, *more: str) -> None:
        process, log = begin(home, *more)
        assert process.wait(SECONDS) == 0, log.read_text()[-3000:]

    finish(calm)
    shutil.copytree(calm, rough)
    finish(calm, *GRPO)
    kill_when(lambda: any(rough.glob("work/grpo-*/grpo/checkpoint-2/**/*.safetensors")), *begin(rough, *GRPO))
    assert not made_by(rough, "grpo")
    finish(rough, *GRPO)
    assert made_by(rough, "grpo")["grpo"].metadata["metrics"]["resumed_from_step"] >= 1
    for stage in ("grpo", "merge"):
        assert made_by(rough, stage)[LAST[stage]].digest == made_by(calm, stage)[LAST[stage]].digest
