"""The whole of SMART on a real server, with a scripted model for the answers and real training of a tiny model."""

import json
import time
from collections import Counter
from pathlib import Path

import pytest

from flows.smart import smart
from reasoner.errors import CollapseError, DataError, ModelError, TrainingError
from reasoner.records import ArtifactRef
from reasoner.stages.report import read as read_report
from reasoner.store import Store, open_ref
from reasoner.store.rows import read_rows
from reasoner.training.adapter import read_adapter
from tests.flows.test_smart_ways import trained_from
from tests.support.graph import check_edges, states
from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.flows, pytest.mark.timeout(900)]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("tiny") / "model")


def settings(model: Path, *more: str) -> list[str]:
    return [
        f"model.path={model}", "engine=scripted", "engine.options.script=tests.support.solver:solve",
        "train.precision=fp32", "train.max_length=512", "train.batch_size=16", "train.lr=1e-2", *more,
    ]  # fmt: skip


def run(model: Path, *more: str) -> ArtifactRef:
    return smart("smart-demo", settings(model, *more))


def stages_run(home: Path) -> Counter[str]:
    return Counter(m.metadata["stage"] for m in manifests(home))


def base_of_adapter(home: Path, digest: str) -> str:
    return str(read_adapter(home / "artifacts" / "adapter" / digest)["base_model_name_or_path"])


def manifests(home: Path) -> list:
    store = Store(home / "artifacts")
    return [store.manifest(ref) for ref in store.list()]


def test_from_questions_to_report_and_again_from_the_cache(home: Path, tiny: Path) -> None:
    first = run(tiny)
    assert check_edges(home) > 30
    report = read_report(open_ref(first))
    table = report.tables[0]
    labels = [row.label for row in table.rows]
    assert labels[-2:] == ["epoch 1", "epoch 2"] and len(table.rows) == 8
    assert table.rows[0].accuracy.n > 100 and table.rows[-1].best is not None
    assert [r.label for r in report.records] == ["epoch 1", "epoch 2"] and report.losses[1].train is not None

    kinds = Counter(m.kind for m in manifests(home))
    assert kinds["model"] == 3 and kinds["adapter"] == 2 and kinds["report"] == 1
    epoch2 = next(m for m in manifests(home) if m.metadata["stage"] == "records-later")
    rows = read_rows(home / "artifacts" / "records" / epoch2.digest / "train.jsonl")
    assert {row["kind"] for row in rows} == {"direct", "refine"}

    assert trained_from(home) == {"model": 1, "merge": 1}, "epoch 2 starts from epoch 1's model"
    merged = {m.digest for m in manifests(home) if m.metadata["stage"] == "merge"}
    bases = {base_of_adapter(home, m.digest) for m in manifests(home) if m.kind == "adapter"}
    assert len(bases) == 2 and str(tiny) in bases, (
        "by the first base's name PEFT would load the wrong weights"
    )
    assert any(base.endswith(f" merged {digest[:16]}") for base in bases for digest in merged)
    assert {m.metadata["model"] for m in manifests(home) if m.kind == "model"} == {str(tiny)}

    before, made = {m.digest for m in manifests(home)}, states(home)
    assert made["Completed"] > 30 and made["Cached"] <= 1, "a stage may be asked for twice in a run"
    assert run(tiny) == first
    assert {m.digest for m in manifests(home)} == before

    deadline = time.monotonic() + 60  # the server learns of states a little after they were reached
    while states(home) != {"Cached": made.total()} and time.monotonic() < deadline:
        time.sleep(0.5)
    assert states(home) == {"Cached": made.total()}, "the second run took every stage from the cache"


def test_a_model_that_names_no_strategy_is_stopped_before_self_sampling(home: Path, tiny: Path) -> None:
    with pytest.raises(CollapseError, match="name no strategy"):
        run(tiny, "engine.options.script=tests.support.solver:forgetful")
    assert "sample" not in stages_run(home) and "train" in stages_run(home)


def test_too_few_correct_solutions_stop_before_training(home: Path, tiny: Path) -> None:
    with pytest.raises(TrainingError, match="solved too few questions"):
        run(tiny, "engine.options.script=tests.support.solver:hopeless")
    assert "train" not in stages_run(home)


def test_a_missing_model_and_an_empty_data_set_are_told_in_a_line(
    home: Path, tiny: Path, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match="no-such-model"):
        run(tmp_path / "no-such-model")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    with pytest.raises(DataError, match="empty"):
        run(tiny, "data=file", f"data.pool.mine.path={empty}")
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"text": "How many?", "answer": "3"}) + "\n")
    with pytest.raises(DataError, match="question"):
        run(tiny, "data=file", f"data.pool.mine.path={other}")
    run(tiny, "epochs=1")
