"""The Hub path with the real client: a small Hub on this machine, its cache offline, and a local folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reasoner.config.data import SourceConfig
from reasoner.errors import DataError
from reasoner.problems import load_problems
from tests.support.hub_server import COMMIT, serve_hub

PROGRAM = """
import json, sys
from reasoner.config.data import SourceConfig
from reasoner.errors import DataError
from reasoner.problems import load_problems
for line in sys.argv[1:]:
    values = json.loads(line)
    try:
        loaded = load_problems(SourceConfig.model_validate(values))
        print(json.dumps({"fingerprint": loaded.fingerprint, "golds": [p.gold for p in loaded.problems]}))
    except DataError as error:
        print(json.dumps({"error": str(error)}))
"""
GSM = {"name": "gsm", "path": "o/gsm", "split": "train", "answer_format": "hash_marks"}


def in_child(home: Path, sources: list[dict], **environment: str) -> list[dict]:
    """What loading gives in a fresh process: the client reads its environment when it is imported."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(json.dumps, sources)],
        env={**clean, "HF_HOME": str(home), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def data_set(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for split, numbers in {"train": [3, 4], "test": [5]}.items():
        rows = [{"question": f"How many are {n}?", "answer": f"It is so.\n#### {n}"} for n in numbers]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_a_data_set_of_the_hub_its_commit_and_its_cache(tmp_path):
    data_set(tmp_path / "hub" / "o" / "gsm")
    home = tmp_path / "home"
    with serve_hub(tmp_path / "hub") as hub:
        online = in_child(
            home,
            [
                GSM,
                {**GSM, "split": "train+test"},
                {**GSM, "path": "o/none"},
                {**GSM, "split": "tset"},
                {**GSM, "config": "mian"},
                {**GSM, "revision": "v9"},
            ],
            HF_ENDPOINT=hub.url,
        )
        assert any("api/datasets/o/gsm" in line for line in hub.asked)
    first, both, missing, split, config, revision = online
    assert first["golds"] == ["3", "4"]
    assert first["fingerprint"]["revision"] == COMMIT
    assert both["golds"] == ["3", "4", "5"]
    assert "data set gsm: Dataset 'o/none' doesn't exist on the Hub" in missing["error"]
    assert 'Unknown split "tset"' in split["error"]
    assert "'mian' not found" in config["error"]
    assert "Revision 'v9' doesn't exist" in revision["error"]

    cached, pinned, other, absent = in_child(
        home,
        [GSM, {**GSM, "revision": COMMIT}, {**GSM, "revision": "d" * 40}, {**GSM, "path": "o/none"}],
        HF_HUB_OFFLINE="1",
    )
    assert cached == first
    assert pinned == first
    assert "at dddddddddddd is not in the local cache (it has c0ffee000000)" in other["error"]
    assert "Couldn't reach 'o/none' on the Hub" in absent["error"]
    assert "gsm.path=FILE.jsonl" in absent["error"]
    assert all("\n" not in answer.get("error", "") for answer in [*online, other, absent])


def test_a_local_folder_in_the_hubs_layout(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = data_set(tmp_path / "gsm")
    source = SourceConfig.model_validate({**GSM, "path": str(folder)})
    assert source.kind == "hub"
    loaded = load_problems(source)
    assert [problem.gold for problem in loaded.problems] == ["3", "4"]
    assert loaded.fingerprint["revision"] is None
    assert str(tmp_path) not in json.dumps(loaded.fingerprint)
    with pytest.raises(DataError, match="Unknown split"):
        load_problems(source.model_copy(update={"split": "tset"}))
