"""Where a model came from, by whatever name it is asked for.

Wrong if a root is missing, if a run is told another run's inputs, or if a name of nothing costs more than a line.
"""

import json
import shutil
from pathlib import Path

import pytest

from flows.commands.lineage import tell
from reasoner.errors import UsageError
from reasoner.lineage import journal
from reasoner.lineage.find import find_model
from reasoner.lineage.known import Known
from reasoner.lineage.lines import lines
from reasoner.lineage.tree import Node, tree
from tests.unit.lineage.build import Built, run_id


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Built:
    monkeypatch.setenv("REASONER_HOME", str(tmp_path / "home"))
    return Built(tmp_path / "home")


def stages(root: Node) -> list[str]:
    return sorted(node.name for node in root.walk())


def test_the_tree_reaches_every_root_once(built: Built) -> None:
    refs = built.chain(seed=5, temperature=0.7)
    root = tree(refs[-1], Known(built.store))
    assert stages(root) == sorted(
        ["merge epoch 1", "model", "train epoch 1", "records-epoch1", "verify few-shot cot pool", "few-shot cot pool",
         "problems"]
    )  # fmt: skip
    by_name = {node.name: node for node in root.walk()}
    assert by_name["few-shot cot pool"].settings()["few_shot.decoding.temperature"] == 0.7
    assert by_name["problems"].settings()["seed"] == 5 and by_name["model"].settings() == {
        "model.path": "base-1b"
    }


def test_defaults_are_left_out_of_the_settings(built: Built) -> None:
    from reasoner.config.smart import EngineConfig

    ref = built.put("x", "x", "x", engine=EngineConfig(kind="scripted").model_dump(), empty={})
    assert tree(ref, Known(built.store)).settings() == {"engine.kind": "scripted"}


@pytest.mark.parametrize("name", ["id", "run", "digest", "kind/digest", "folder", "key", "copy"])
def test_a_model_is_found_by_what_people_have(built: Built, tmp_path: Path, name: str) -> None:
    refs = built.chain()
    folder, model = built.run(1, refs), refs[-1]
    copied = tmp_path / "copied"
    shutil.copytree(built.store.open(model), copied, ignore=shutil.ignore_patterns("manifest.json"))
    given = {
        "id": run_id(1), "run": folder.name, "digest": model.digest[:10], "kind/digest": f"model/{model.digest}",
        "folder": str(built.store.open(model)), "key": built.calls[model.digest].key, "copy": str(copied),
    }[name]  # fmt: skip
    assert find_model(given, built.home, Known(built.store))[0] == model


def test_a_run_is_told_its_own_inputs_though_another_came_to_the_same_content(built: Built) -> None:
    one = built.put("problems", "problems", "one", seed=1)
    records = built.put("records", "records", "same", problems=one)
    other = built.put("problems", "problems", "two", seed=2)
    assert built.put("records", "records", "same", problems=other) == records
    folder = built.run(1, [other, records])
    ref, calls = find_model(folder.name, built.home, Known(built.store))
    assert stages(tree(ref, Known(built.store, calls))) == ["problems", "records"]
    assert [node.ref for node in tree(ref, Known(built.store, calls)).walk()][1] == other
    assert [node.ref for node in tree(ref, Known(built.store)).walk()][1] == one, (
        "the manifest keeps the first"
    )


def test_a_run_tells_the_code_that_made_its_model_and_when(built: Built) -> None:
    refs = built.chain()
    folder = built.run(1, refs, state=journal.CACHED)
    ref, calls = find_model(folder.name, built.home, Known(built.store))
    told = list(lines(tree(ref, Known(built.store, calls))))
    assert told[-1] == "code        abc torch 2.13.0"
    assert told[0].endswith(built.store.manifest(ref).created[:19])


def test_an_unfinished_run_is_asked_for_its_last_model(built: Built) -> None:
    refs = built.chain()
    folder = built.run(1, refs[:6], done=False)
    assert find_model(folder.name, built.home, Known(built.store))[0] == refs[5]
    empty = built.run(2, [], done=False)
    with pytest.raises(UsageError, match="has made nothing yet"):
        find_model(empty.name, built.home, Known(built.store))


def test_what_is_gone_is_said(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    refs = built.chain()
    shutil.rmtree(built.store.open(refs[0]))
    built.run(1, refs)
    tell(run_id(1), as_json=False, full=False)
    out = capsys.readouterr().out
    assert "is no longer in the store" in out and f"gone        problems {refs[0].digest[:12]}" in out


def test_the_page_and_its_json(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    refs = built.chain(seed=5)
    tell(refs[-1].digest, as_json=False, full=False)
    told = capsys.readouterr().out.splitlines()
    assert told[0].startswith(f"merge epoch 1  model {refs[-1].digest[:12]}")
    assert any("(as above)" in line for line in told) and max(map(len, told)) <= 111
    assert "seeds       5" in told and any(line.startswith("code        abc torch 2.13.0") for line in told)
    tell(refs[-1].digest, as_json=True, full=False)
    row = json.loads(capsys.readouterr().out)
    assert row["stage"] == "merge" and {i["argument"] for i in row["inputs"]} == {
        "model",
        "adapter",
        "records",
    }


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("smart-dmo", "Did you mean 'smart-demo'"),
        ("zzzz", "no run 'zzzz'"),
        ("00", "2 runs are called"),
    ],
)
def test_a_name_that_means_nothing_is_a_line(built: Built, name: str, words: str) -> None:
    built.run(1, built.chain())
    built.run(2, built.chain(seed=2))
    with pytest.raises(UsageError, match=words) as caught:
        find_model(name, built.home, Known(built.store))
    assert len(str(caught.value).splitlines()) == 1


def test_a_digest_of_several_and_a_folder_of_nothing(built: Built, tmp_path: Path) -> None:
    for number in range(40):
        built.put("x", "x", str(number), n=number)
    digests = sorted(ref.digest for ref in built.store.list())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "weights.bin").write_text("x")
    with pytest.raises(UsageError, match="nothing there has its content"):
        find_model(str(tmp_path / "other"), built.home, Known(built.store))
    assert find_model(digests[0][:12], built.home, Known(built.store))[0].digest == digests[0]
