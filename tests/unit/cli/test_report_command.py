"""`reasoner report`. Wrong if the file is not where it was asked for, or a mistake is not told in a line."""

from pathlib import Path

import pytest

from flows.commands.report import report
from reasoner.errors import UsageError
from tests.support.report_runs import ID, Runs


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("REASONER_STORE", raising=False)
    monkeypatch.setenv("REASONER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_file_lies_in_the_run_or_where_it_was_asked_for(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Runs(home).multiturn(3)
    report(ID[:4], None, False)
    assert (folder / "report.html").is_file()
    assert f"{folder / 'report.html'}  (12 trajectories, " in capsys.readouterr().out
    report(str(folder), tmp_path / "new" / "page.html", False)
    assert (tmp_path / "new" / "page.html").read_text() == (folder / "report.html").read_text()
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["page.html"]


def test_mistakes_are_told_in_a_line(home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run 'x'"):
        report("x", None, False)
    Runs(home).multiturn(2)
    with pytest.raises(UsageError, match=r"is a folder; name a file, such as .*report\.html"):
        report(ID, tmp_path, False)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot write the report: .*give another --output"):
        report(ID, tmp_path / "file" / "page.html", False)
