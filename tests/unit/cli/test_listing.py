"""`reasoner runs` of a home folder that came from another place. Wrong if it names the place it came from."""

import json
import shutil
from pathlib import Path

from reasoner.store import Store
from tests.unit.cli.test_cli import reasoner


def test_a_copied_home_folder_names_its_own_model(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    with Store(there / "artifacts").writer("model") as draft:
        (draft.path / "note.json").write_text("1")
    report = {"kind": "report", "digest": "0" * 64, "uri": str(there / "artifacts" / "report" / ("0" * 64))}
    run = there / "runs" / "smart-demo-00000000-0000-0000-0000-000000000000"
    run.mkdir(parents=True)
    (run / "config.json").write_text("{}")
    (run / "finished").touch()
    result = {"report": report, "model": draft.ref.to_row(), "model_path": draft.ref.uri}
    (run / "result.json").write_text(json.dumps(result))
    shutil.copytree(there, here)
    shutil.rmtree(there)
    done = reasoner("runs", "--json", home=here)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)
    assert row["model"].startswith(str(here))
