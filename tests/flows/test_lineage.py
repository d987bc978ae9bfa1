"""What a run leaves to be asked of later: edges, timelines, its journal; and housekeeping while it goes on.

Wrong if an edge of the run graph is missing or leads elsewhere, if a stage's artifact key shows no new version, if
`why` names another field than the one that was changed, or if a sweep takes something from under a run.
"""

import json
import os
import threading
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client

from flows.commands.gc import collect
from reasoner.config.smart import SamplingConfig
from reasoner.home import Home
from reasoner.housekeeping import reach
from reasoner.lineage import journal, why
from reasoner.lineage.known import Known
from reasoner.records import ArtifactRef
from reasoner.store import Draft, Store, open_ref
from tasks.context import run_context
from tasks.rehearsal import rehearse
from tasks.stage import stage
from tests.support.graph import check_edges, timeline

pytestmark = [pytest.mark.flows, pytest.mark.timeout(600)]

swept: list[dict] = []


@dataclass(frozen=True, slots=True)
class Pair:
    """A reference inside of a dataclass, as SMART's evaluation takes it."""

    label: str
    ref: ArtifactRef


@stage("lineage-make", kind="text", version=1, label=lambda a: a["name"])
def make(out: Draft, name: str, config: SamplingConfig) -> None:
    (out.path / "a.txt").write_text(f"{name} {config.temperature}")


@stage("lineage-copy", kind="text", version=1)
def copy(out: Draft, text: ArtifactRef) -> None:
    collect_now()
    (out.path / "a.txt").write_text((open_ref(text) / "a.txt").read_text() + " copied")


@stage("lineage-join", kind="text", version=1)
def join(out: Draft, texts: tuple[ArtifactRef, ...], pairs: tuple[Pair, ...]) -> None:
    collect_now()
    refs = [*texts, *(pair.ref for pair in pairs)]
    (out.path / "a.txt").write_text(" ".join((open_ref(ref) / "a.txt").read_text() for ref in refs))


def collect_now() -> None:
    """`reasoner gc --keep-days 0` in the middle of a stage."""
    if swept:
        collect(dry_run=False, keep_days=0, as_json=False)


@flow(name="lineage")
def pipeline(name: str = "lineage", overrides: list[str] | None = None) -> ArtifactRef:
    temperature = float((overrides or ["0"])[0])
    with run_context(name) as run:
        (run.folder / "config.json").write_text("{}")
        parts = [make(each, SamplingConfig(temperature=temperature)) for each in ("one", "two", "three")]
        joined = join((parts[0], copy(parts[1])), (Pair("x", parts[2]),))
        (run.folder / "result.json").write_text(json.dumps({"model": joined.to_row()}))
        return joined


def named(run_id: int) -> str:
    return f"lineage-00000000-0000-0000-0000-{run_id:012d}"


def forget(home: Path, number: int) -> None:
    """Let a run look as if it had been cut off."""
    for name in ("result.json", journal.FINISHED):
        (home / "runs" / named(number) / name).unlink()


@pytest.fixture(autouse=True)
def quiet() -> None:
    swept.clear()


def test_edges_timelines_and_reasons(home: Path) -> None:
    pipeline(named(1), ["0.0"])
    pipeline(named(2), ["0.7"])
    rows = journal.read(home / "runs" / named(2))
    assert Counter(row.state for row in rows) == {"made": 5}
    with get_client(sync_client=True) as client:
        last = client.read_flow_runs(limit=1, sort="START_TIME_DESC")[0]  # type: ignore[arg-type]
    # The helper finds a run's folder by the id at its end; here the folder's name was given.
    (home / "runs" / named(2)).rename(home / "runs" / f"lineage-{last.id}")
    assert check_edges(home) == 4
    assert timeline("lineage-copy").count("lineage-copy") == 2, "each making is a version of the key"

    followed = rehearse(pipeline, named(3), ["0.2"])
    asked = next(a for a in followed.asked if a.call.stage == "lineage-join")
    known = Known(Store(home / "artifacts"), [a.call for a in followed.asked])
    answer = why.explain(asked, known.all("lineage-join"), known.call, {})
    assert {(c.path, c.after) for change in answer.changes for c in change.roots()} == {
        ("config.temperature", 0.2)
    }
    assert not (home / "runs" / named(3)).exists(), "a rehearsal leaves nothing"

    pipeline(named(4), ["0.7"])
    assert {row.state for row in journal.read(home / "runs" / named(4))} == {"cached"}


def test_sweeps_in_the_middle_of_a_run_take_nothing_that_it_uses(home: Path) -> None:
    """Every stage sweeps with `--keep-days 0` while it is computed: the second time over an old run's."""
    swept.append({})
    first = pipeline(named(1), ["0.0"])
    forget(home, 1)  # now nothing reaches what it made
    for path in [*home.rglob("*"), home]:
        os.utime(path, (0, 0))
    old = {ref.digest for ref in Store(home / "artifacts").list()}
    second = pipeline(named(2), ["0.5"])
    there = {ref.digest for ref in Store(home / "artifacts").list()}
    assert len(old) == 5 and second.digest in there and not old & there, (
        "what only the old run had made is gone"
    )
    assert len(there) == 5 and pipeline(named(3), ["0.0"]) == first, "and can be made again"


def test_runs_and_sweeps_at_the_same_time(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread sweeps without a pause while runs begin, end and are forgotten: no run may miss an artifact."""
    monkeypatch.setattr(reach, "MARGIN", 0.05)
    done, errors = threading.Event(), []

    def sweeper() -> None:
        while not done.is_set():
            try:
                collect(dry_run=False, keep_days=0, as_json=False)
            except Exception:
                errors.append(traceback.format_exc())
                return

    thread = threading.Thread(target=sweeper)
    thread.start()
    try:
        for number in range(8):
            ref = pipeline(named(number), [str(number % 2)])
            assert (open_ref(ref) / "a.txt").read_text().startswith(f"one {number % 2}")
            forget(home, number)
    finally:
        done.set()
        thread.join()
    assert not errors, errors[0]
    assert Home(home).locks.is_dir() and not list((home / "locks" / "runs").glob("*"))
