"""The planner's flow on a real server with a tiny model that has learnt to plan, and with real training.

Wrong if a stage is left out, if the second run computes anything, if the report says other figures than the stages, or
if a warm start that does not plan is let through to GRPO.
"""

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from flows.planner import planner
from reasoner.errors import CollapseError, DataError, PublishError, TrainingError
from reasoner.problems.telling import pass_rates
from reasoner.records import ArtifactRef
from reasoner.report.planner import PlannerReport, plain_lines
from reasoner.stages.planner import read_episodes
from reasoner.store import Store, open_ref
from tests.support.graph import check_edges
from tests.support.hub_server import TOKEN, serve_hub
from tests.unit.training.planner.planning import learnt_to_plan, problems

pytestmark = [pytest.mark.flows, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return overrides_of(tmp_path_factory.mktemp("world"))


def overrides_of(folder: Path) -> list[str]:
    """Overrides that run the demo pipeline on a tiny model and its own questions, which are made in `folder`."""
    base, _, prompts = learnt_to_plan(folder, questions=24)
    rows = folder / "questions.jsonl"
    rows.write_text(
        "".join(json.dumps({"question": p.question, "answer": p.gold}) + "\n" for p in problems(24))
    )
    return [
        f"model.path={base}", f"prompt.template={prompts}", "engine=transformers",
        "engine.options={max_model_len: 256, batch_size: 16}", "data=file", f"data.pool.mine.path={rows}",
        "data.held_out=0.3", "data.validation=0.3", "data.evaluation={}", "worker.decoding.max_tokens=12",
        "sft.decoding.max_tokens=64", "sft.train.max_length=256", "sft.train.precision=fp32", "sft.samples=3",
        "sft.train.lora.r=4", "grpo.lora.r=4", "grpo.precision=fp32", "grpo.max_prompt_length=128",
        "grpo.max_completion_length=64", "evaluation.decoding.max_tokens=64", "evaluation.bootstrap=200",
        "reward.independence_weight=0", "sft.min_parse_rate=0.6",
    ]  # fmt: skip


def stages_run(home: Path) -> Counter[str]:
    store = Store(home / "artifacts")
    return Counter(store.manifest(ref).metadata["stage"] for ref in store.list())


def report_of(ref: ArtifactRef) -> PlannerReport:
    return PlannerReport.model_validate_json((open_ref(ref) / "report.json").read_text())


def test_from_questions_to_report_and_again_from_the_cache(
    home: Path, world: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = planner("planner-demo", world)
    assert check_edges(home) > 20
    ran = stages_run(home)
    assert ran["plan-candidates"] == ran["planner-sft"] == ran["planner-grpo"] == ran["planner-merge"] == 1
    assert ran["plan-arms"] == 2 and ran["plan-gate"] == 1
    report = report_of(first)
    found = report.evaluations[0]
    assert [arm.name for arm in found.arms] == ["trained", "untrained", "atomic", "decomposed", "oracle"]
    by_name = {arm.name: arm for arm in found.arms}
    assert found.n >= 4 and by_name["atomic"].accuracy.k > 0 and by_name["atomic"].planner_tokens == 0
    assert by_name["oracle"].accuracy.k >= by_name["atomic"].accuracy.k
    assert by_name["decomposed"].decomposed.k == by_name["decomposed"].valid.k
    assert report.targets["targets"] >= 4 and report.gate["valid"] >= 0.6 * report.gate["outputs"] > 0
    assert len(report.curves) == 2 and [loss.label for loss in report.losses] == ["warm start", "GRPO"]
    page = (open_ref(first) / "report.md").read_text()
    assert found.sentence in page and "(e) better of c and d (oracle)" in page
    assert any("(a) trained planner" in line for line in plain_lines(report))

    assert planner("planner-demo", world) == first
    assert stages_run(home) == ran

    # Published at the end: the same again pushes nothing, not even when the stage's result is lost.
    with serve_hub() as hub:
        for name, value in {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("HF_HOME", str(home / "hf"))
        published = [*world, "publish.enabled=true", "publish.repo=me/tiny-planner"]
        assert planner("planner-demo", published) == first and planner("planner-demo", published) == first
        repository = hub.repositories["me/tiny-planner"]
        assert len(repository.commits) == 2 and repository.private
        assert found.sentence in repository.files["README.md"].decode()
        asked = len(hub.asked)
        planner("planner-demo", published)
        assert len(hub.asked) == asked, "the cached stage asks nobody"
        for folder in (home / "artifacts" / "publication").iterdir():
            shutil.rmtree(folder)
        planner("planner-demo", published)
        assert len(hub.asked) > asked and len(repository.commits) == 2

    # GRPO from the base alone, on questions that some plans solve: what was made for the warm start serves again.
    low, high = 0.1, 0.45
    alone = [*world, "grpo.warm_start=false", "sft.enabled=false"]
    other = planner("planner-demo", [*alone, f"grpo.pass_rate=[{low},{high}]"])
    assert stages_run(home)["planner-grpo"] == 2 and stages_run(home)["plan-candidates"] == 1
    assert report_of(other).targets == {}
    counts = check_telling_questions(Store(home / "artifacts"), low, high)
    page = (open_ref(other) / "report.md").read_text()
    assert f"GRPO asked {counts['kept']} of {counts['questions']} training questions" in page
    with pytest.raises(DataError, match=r"grpo.pass_rate=\[0.01, 0.02\] leaves none of"):
        planner("planner-demo", [*alone, "grpo.pass_rate=[0.01,0.02]"])
    assert stages_run(home)["planner-grpo"] == 2


def check_telling_questions(store: Store, low: float, high: float) -> dict[str, int]:
    """GRPO was asked what the tried plans say that it should be asked; returns the stage's counts."""
    made = [(ref, store.manifest(ref).metadata) for ref in store.list()]
    (drawn,) = [ref for ref, m in made if m["stage"] == "plan-candidates"]
    (ways,) = [ref for ref, m in made if m["stage"] == "plan-arms" and m["arguments"]["split"] == "train"]
    tried = read_episodes(open_ref(drawn), "train")
    for name in ("untrained", "atomic", "decomposed"):
        tried += read_episodes(open_ref(ways), name)
    rates = pass_rates((e.problem_id, e.verdict.correct) for e in tried if e.scored)
    (counts,) = [m for _, m in made if m["stage"] == "plan-questions"]
    assert len(set(rates.values())) > 1 and counts["questions"] == len(rates)
    assert counts["kept"] == sum(low <= rate <= high for rate in rates.values()) > 0
    asked = [m["training"]["questions"]["kept"] for _, m in made if m["stage"] == "planner-grpo"]
    assert sorted(asked) == [counts["kept"], counts["questions"]]
    return counts


def test_a_warm_start_that_does_not_plan_stops_before_grpo(home: Path, world: list[str]) -> None:
    with pytest.raises(CollapseError, match="planner outputs on the validation questions are valid"):
        planner("planner-demo", [*world, "sft.train.lr=0.5", "sft.train.epochs=10"])
    assert "planner-grpo" not in stages_run(home)


def test_a_base_that_never_plans_right_stops_before_training(home: Path, world: list[str]) -> None:
    with pytest.raises(TrainingError, match=r"only \d+ targets"):
        planner("planner-demo", [*world, "sft.train.min_records=1000"])
    assert "planner-sft" not in stages_run(home)


def test_publishing_without_a_token_stops_before_the_work(
    home: Path, world: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with pytest.raises(PublishError, match="no Hub token"):
        planner("planner-demo", [*world, "publish.enabled=true", "publish.repo=me/x"])
    assert not stages_run(home)
