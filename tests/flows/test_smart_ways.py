"""Other ways through the flow: controls and variants in one table, and epochs until nothing more is gained."""

from collections import Counter
from pathlib import Path

import pytest

from flows.smart import smart
from reasoner.stages.report import read as read_report
from reasoner.store import Store, open_ref
from reasoner.store.rows import read_rows
from tests.unit.training.tiny import make_model

pytestmark = [pytest.mark.flows, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny") / "model")


def settings(model: Path, *more: str) -> list[str]:
    return [
        f"model.path={model}", "engine=scripted", "engine.options.script=tests.support.solver:solve",
        "data.pool.word_problems.limit=120", "data.held_out=0.3", "data.validation=0.2", "epochs=1",
        "train.precision=fp32", "train.max_length=512", "train.batch_size=16", "train.lr=1e-2", *more,
    ]  # fmt: skip


def stages_run(home: Path) -> Counter[str]:
    store = Store(home / "artifacts")
    return Counter(store.manifest(ref).metadata["stage"] for ref in store.list())


def trained_from(home: Path) -> Counter[str]:
    """What made the models that were fine-tuned: the stage `model` for the base, `merge` for an epoch's model."""
    store = Store(home / "artifacts")
    made_by = {ref.digest: store.manifest(ref).metadata["stage"] for ref in store.list()}
    facts = [store.manifest(ref).metadata for ref in store.list()]
    return Counter(made_by[f["arguments"]["model"]["digest"]] for f in facts if f["stage"] == "train")


def test_controls_stand_beside_the_main_training_and_share_its_few_shot_stages(
    home: Path, tiny: Path
) -> None:
    smart("smart-demo", settings(tiny))
    before = stages_run(home)
    variants = (
        'variants={rft:["control=rft","control.samples=2"],shuffled:["control=shuffled_labels"],'
        'balanced:["epoch1.balance_strategies=true"],starved:["train.min_records=100000"]}'
    )
    report = read_report(
        open_ref(smart("smart-demo", settings(tiny, variants, "evaluation.second_turn=last")))
    )
    after = stages_run(home)
    for shared in ("problems", "model", "few-shot", "analysis", "records-epoch1"):
        assert after[shared] - before[shared] == (shared == "records-epoch1"), f"{shared} was made again"
    assert after["few-shot-samples"] == after["records-rejected"] == after["shuffle-labels"] == 1
    assert after["train"] - before["train"] == 3

    rows = {row.label: row for row in report.tables[0].rows}
    assert [row.kind for row in rows.values()][-4:] == ["policy", "control", "control", "variant"]
    assert [c.against for c in rows["balanced"].controls] == ["rft", "shuffled"]
    assert len(rows["epoch 1"].controls) == 2 and rows["epoch 1"].correction is not None
    assert "starved" not in rows
    assert any("not trained: starved: only" in sentence for sentence in report.left_out)
    sets = {found.label: found for found in report.records}
    assert list(sets) == ["epoch 1", "rft", "shuffled", "balanced"]
    assert sets["shuffled"].by_strategy == sets["epoch 1"].by_strategy
    assert sum(count > 0 for count in sets["rft"].by_strategy.values()) == 1
    assert len(set(sets["balanced"].by_strategy.values())) == 1


def test_it_stops_when_validation_gains_no_more_and_keeps_the_best_epoch(home: Path, tiny: Path) -> None:
    """The scripted model answers alike after every training: epoch 2 adds nothing, and epoch 1 is the result."""
    wanted = settings(tiny, "epochs=until-converged", "max_epochs=4", "control=random_strategy",
                      "evaluation.second_turn=none", "evaluation.each_strategy=last", "epoch2.init=base")  # fmt: skip
    report = read_report(open_ref(smart("smart-demo", wanted)))
    assert report.facts["epochs"].startswith("converged: ")
    labels = [row.label for row in report.tables[0].rows if row.kind == "policy"]
    assert labels == ["random strategy epoch 1", "random strategy epoch 2"]
    assert [row.forced is not None for row in report.tables[0].rows if row.kind == "policy"] == [False, True]
    made = stages_run(home)
    assert made["convergence"] == 2 and made["train"] == 2 and made["answer-again"] == 0
    assert trained_from(home) == {"model": 2}, "with epoch2.init=base every epoch starts from the base"
    store = Store(home / "artifacts")
    answers = [ref for ref in store.list() if store.manifest(ref).metadata["stage"] == "answer"]
    used = [row["text"].split(":")[0] for row in read_rows(store.open(answers[0]) / "completions.jsonl")]
    assert len(Counter(used)) == 3
