"""A flow that is followed without being run: no server, no model, nothing left behind.

Wrong if a stage is called, if what is kept is said to run, or if what is gone is said to be kept.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from prefect import flow

from flows.smart import smart
from reasoner.home import Home
from reasoner.lineage import why
from reasoner.records import ArtifactRef
from reasoner.store import Draft, open_ref
from tasks.context import run_context
from tasks.rehearsal import rehearse
from tasks.stage import Stage, stage

called: list[str] = []


@stage("rehearsal-make", kind="text", version=1)
def make(out: Draft, number: int) -> None:
    called.append("make")
    (out.path / "a.txt").write_text(str(number))


@stage("rehearsal-copy", kind="text", version=3, label=lambda a: (open_ref(a["text"]) / "a.txt").read_text())
def copy(out: Draft, text: ArtifactRef) -> None:
    called.append("copy")
    (out.path / "a.txt").write_text("copied")


@flow
def pipeline(name: str, overrides: list[str]) -> str:
    with run_context(name):
        copied = copy(make(int(overrides[0])))
        text = (open_ref(copied) / "a.txt").read_text()
        make(7)
        return text


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("REASONER_HOME", str(tmp_path / "home"))
    called.clear()
    return Home.from_environment()


def run(home: Home, one: Stage, **arguments: Any) -> ArtifactRef:
    """Compute a stage without Prefect and keep its result as Prefect does."""
    with run_context("made"):
        ref = one.run(arguments)
    home.results.mkdir(parents=True, exist_ok=True)
    (home.results / one.key(arguments)).write_text(
        json.dumps({"metadata": {}, "result": json.dumps(ref.to_row())})
    )
    return ref


def states(number: int) -> list[tuple[str, str]]:
    return [(a.call.name, a.state) for a in rehearse(pipeline, "x", [str(number)]).asked]


def test_what_is_kept_gone_forgotten_and_new(home: Home) -> None:
    made = run(home, make, number=1)
    copied = run(home, copy, text=made)
    called.clear()
    assert states(1) == [
        ("rehearsal-make", why.KEPT),
        ("rehearsal-copy 1", why.KEPT),
        ("rehearsal-make", why.STALE),
    ]
    followed = rehearse(pipeline, "x", ["2"])
    assert [a.state for a in followed.asked] == [why.STALE, why.STALE]
    assert followed.stopped, "it would have to read what is not made yet"
    (home.results / copy.key({"text": made})).unlink()
    assert states(1)[1] == ("rehearsal-copy 1", why.FORGOTTEN)
    (open_ref(made) / "a.txt").write_text("altered")
    assert states(1)[0] == ("rehearsal-make", why.GONE)
    assert called == [] and copied.kind == "text" and not (home.runs / "x").exists()


def test_a_whole_method_is_followed_on_an_empty_home(home: Home, tmp_path: Path) -> None:
    found = rehearse(
        smart, "smart-demo", [f"model.path={tmp_path}", "engine=scripted", "engine.options.script=a:b"]
    )
    stages = [a.call.stage for a in found.asked]
    assert (
        stages[0] == "problems"
        and stages[-1] == "report"
        and stages.count("train") == 2
        and not found.stopped
    )
    assert {a.state for a in found.asked} == {why.STALE} and not home.path.exists()
