"""What a sweep takes and what it leaves.

Wrong if anything that a run, a release or living work reaches goes, if something else stays, if a dry run changes a
file, or if a sweep that is cut off at any moment leaves a store that cannot be used.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows.commands.gc import collect
from reasoner.config.smart import EngineConfig
from reasoner.errors import BusyError, DataError
from reasoner.home import Home
from reasoner.housekeeping import live, reach, sweep
from reasoner.housekeeping.ledgers import unreached
from reasoner.ledger import Ledger
from reasoner.lineage.known import Known
from reasoner.process.stage_lock import stage_lock
from reasoner.records import ArtifactRef, Completion, GenerationRequest, Sampling
from reasoner.stages.generation import served_fingerprint
from reasoner.store import Store
from reasoner.store.removal import remove, touch_ref
from reasoner.workbench import ModelFolder
from tests.crash.faults import KILLED, run_cut
from tests.unit.lineage.build import ENGINE, Built, run_id

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Built:
    monkeypatch.setenv("REASONER_HOME", str(tmp_path / "home"))
    return Built(tmp_path / "home")


def age(home: Home, days: float = 30) -> None:
    """Let everything have been left alone for so many days."""
    then = time.time() - days * 24 * 3600
    for path in [*home.path.rglob("*"), home.path]:
        os.utime(path, (then, then))


def there(built: Built) -> set[str]:
    return digests(Store(built.home.artifacts).list())


def digests(refs: list[ArtifactRef]) -> set[str]:
    return {ref.digest for ref in refs}


def test_equal_content_of_two_kinds_is_two_artifacts(
    built: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    """A digest covers the files alone: an artifact is known by its kind too."""
    base = built.put("problems", "problems", "same", seed=1)
    said = built.put("answer", "completions", "same", problems=base)
    assert base.digest == said.digest
    built.run(1, [said])
    lost = built.put("verify", "attempts", "same", completions=said)
    age(built.home)
    assert [row["name"] for row in gc(capsys)["removed"]] == [f"attempts/{lost.digest}"]
    assert {ref.kind for ref in Store(built.home.artifacts).list()} == {"problems", "completions"}


def gc(capsys: pytest.CaptureFixture[str], dry_run: bool = False, keep_days: float = 7.0) -> dict:
    capsys.readouterr()
    collect(dry_run, keep_days, as_json=True)
    return dict(json.loads(capsys.readouterr().out))


def ledger_name(model: ArtifactRef) -> str:
    folder = ModelFolder(Path(), model.digest, "")
    return served_fingerprint(folder, EngineConfig.model_validate(ENGINE))[:32]


def journal_one(folder: Path) -> None:
    request = GenerationRequest("p", "prompt", Sampling(0.0, 1.0, 0, 8, ()), 0, 0)
    with Ledger(folder) as ledger:
        ledger.append([(request.key("m"), request, Completion("a", "stop", 1, 1))])


def test_a_finished_run_and_a_release_keep_what_they_reach(
    built: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, released, lost = (built.chain(seed=n) for n in (1, 2, 3))
    built.run(1, kept)
    book = {"schema": 1, "releases": [{"name": "best", "model": released[-1].to_row()}]}
    (built.home.path / "releases.json").write_text(json.dumps(book))
    results = {path.name for path in built.home.results.iterdir()}
    age(built.home)
    before = sum(p.stat().st_size for p in built.home.path.rglob("*") if p.is_file())

    would = gc(capsys, dry_run=True)
    assert there(built) == digests(kept + released + lost), "a dry run removes nothing"
    assert would["kept"]["releases"] == ["best"]
    done = gc(capsys)
    assert done["removed"] == would["removed"] and done["bytes"] == would["bytes"]
    assert there(built) == digests(kept + released)
    gone = digests(lost) - digests(kept)
    assert {row["name"].partition("/")[2] for row in done["removed"]} == gone
    forgotten = results - {path.name for path in built.home.results.iterdir()}
    assert forgotten == {built.calls[digest].key for digest in gone}
    after = sum(p.stat().st_size for p in built.home.path.rglob("*") if p.is_file())
    assert before - after >= done["bytes"] > 0
    assert gc(capsys)["removed"] == []


def test_what_was_used_lately_stays_with_all_that_it_was_made_from(
    built: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    refs = built.chain()
    age(built.home)
    touch_ref(refs[5])
    gc(capsys)
    assert there(built) == digests(refs[:6]), "the merged model is old and nothing reaches it"
    age(built.home, days=3)
    gc(capsys, keep_days=2)
    assert there(built) == set()


def test_a_run_that_was_cut_off_is_kept_for_some_days_and_can_be_taken_up(
    built: Built, capsys: pytest.CaptureFixture[str]
) -> None:
    refs = built.chain()
    folder = built.run(1, refs[:4], done=False)
    built.started(folder, "train", "train-1-aa")
    for key in ("train-1-aa", "train-1-bb"):
        (built.home.work / key).mkdir(parents=True)
        (built.home.work / key / "checkpoint").write_text("half")
    age(built.home)
    os.utime(folder / "stages.jsonl")
    gc(capsys)
    assert there(built) == digests(refs[:4]) and folder.is_dir()
    assert [path.name for path in built.home.work.iterdir()] == ["train-1-aa"], "the other belongs to no run"
    age(built.home)
    rows = gc(capsys)["removed"]
    assert {row["kind"] for row in rows} == {"artifact", "run", "work"} and not folder.exists()
    assert there(built) == set() and not list(built.home.work.iterdir())


def test_a_living_run_keeps_what_it_began_with(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    """What a run at work has used since it began stays, and its folder; what lay there unused before goes."""
    old, used = built.chain(seed=1), built.chain(seed=2)
    folder = built.run(1, used[:3], done=False)
    age(built.home)
    with live.alive(built.home, folder.name):
        facts = gc(capsys, keep_days=0)
        assert facts["kept"]["live"] == [folder.name] and folder.is_dir()
        assert there(built) == digests(used[:3]) and not digests(old[2:]) & there(built)
    age(built.home)
    assert gc(capsys, keep_days=0)["kept"]["live"] == []
    assert not folder.exists() and there(built) == set()


def test_a_killed_run_is_no_longer_alive(built: Built) -> None:
    code = (
        "import sys, time\nfrom reasoner.home import Home\nfrom reasoner.housekeeping.live import alive\n"
        "with alive(Home.from_environment(), 'smart-1'):\n    print('ready', flush=True)\n    time.sleep(600)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    assert [one.run for one in live.live_runs(built.home)] == ["smart-1"]
    child.kill()
    child.wait()
    assert live.live_runs(built.home) == [] and not list((built.home.locks / "runs").iterdir())


def test_what_is_used_between_looking_and_sweeping_stays(built: Built) -> None:
    refs = built.chain()
    age(built.home)
    stock = reach.look(built.home, Known(built.store), time.time(), 7)
    items = sweep.find(stock)
    assert len(items) == 7
    touch_ref(refs[2])  # a run found it in the cache
    with stage_lock(built.home, built.calls[refs[3].digest].key):  # a run is about to find it there
        told = dict(sweep.sweep(items, stock))
    stays = {item.ref.digest: why for item, why in told.items() if why and item.ref}
    assert set(stays) == {refs[2].digest, refs[3].digest} == there(built)
    assert stays[refs[2].digest] == "was used meanwhile" and "in use" in stays[refs[3].digest]
    assert Store(built.home.artifacts).verify(refs[2], full=True)


def test_equal_content_that_is_published_again_counts_as_used(built: Built) -> None:
    ref = built.put("x", "x", "same", n=1)
    age(built.home)
    since = time.time() - 3600
    assert built.put("x", "x", "same", n=2) == ref
    assert not remove(built.store, ref, since) and built.store.verify(ref, full=True)
    outside = built.home.path / "base"
    outside.mkdir()
    (outside / "w").write_text("weights")
    model = built.store.register("model", outside)
    age(built.home)
    assert built.store.register("model", outside) == model and not remove(built.store, model, since)
    age(built.home)
    assert remove(built.store, model, since) and (outside / "w").read_text() == "weights"


def test_only_ledgers_of_the_stores_own_models_go(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    kept, lost = built.chain(seed=1), built.chain(seed=2, lr=0.5)
    built.run(1, kept)
    names = [ledger_name(kept[1]), ledger_name(lost[-1]), "f" * 32]
    for name in names:
        journal_one(built.home.ledger / name)
    age(built.home)
    with Ledger(built.home.ledger / names[1]):
        assert not [row for row in gc(capsys)["removed"] if row["kind"] == "ledger"], "its writer is at work"
    # Its model is gone by now, and nobody could say whose it is: as one of a model outside the store, it stays.
    assert {p.name for p in built.home.ledger.glob("*/")} == set(names)


def test_a_ledger_goes_with_its_model(built: Built, capsys: pytest.CaptureFixture[str]) -> None:
    kept, lost = built.chain(seed=1), built.chain(seed=2, lr=0.5)
    built.run(1, kept)
    for model in (kept[-1], lost[-1]):
        journal_one(built.home.ledger / ledger_name(model))
    age(built.home)
    assert unreached(reach.look(built.home, Known(built.store), time.time(), 7)) >= {ledger_name(lost[-1])}
    done = gc(capsys)
    assert [row["name"] for row in done["removed"] if row["kind"] == "ledger"] == [ledger_name(lost[-1])]
    assert [p.name for p in built.home.ledger.glob("*/")] == [ledger_name(kept[-1])]
    with Ledger(built.home.ledger / ledger_name(kept[-1]), readonly=True) as ledger:
        assert len(ledger) == 1


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"releases": [{}]}'])
def test_releases_that_cannot_be_read_stop_everything(built: Built, text: str) -> None:
    refs = built.chain()
    (built.home.path / "releases.json").write_text(text)
    age(built.home)
    with pytest.raises(DataError, match=r"releases\.json"):
        collect(dry_run=False, keep_days=0, as_json=False)
    assert there(built) == digests(refs)


def test_one_sweep_at_a_time(built: Built) -> None:
    with sweep.sweeping(built.home), pytest.raises(BusyError):
        collect(dry_run=False, keep_days=0, as_json=False)


def test_a_store_at_a_url_is_left_alone(
    built: Built, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REASONER_STORE", "memory://gc-test")
    monkeypatch.setenv("REASONER_CACHE", str(tmp_path / "cache"))
    store = Store(built.home.artifacts)
    with store.writer("x", {}) as draft:
        (draft.path / "a").write_text("x")
    assert gc(capsys, keep_days=0)["removed"] == [] and store.list() == [draft.ref]


@pytest.mark.crash
def test_cut_off_at_any_moment_the_store_is_sound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    outcomes = []
    for at in range(1, 400, 6):
        monkeypatch.setenv("REASONER_HOME", str(tmp_path / str(at)))
        built = Built(tmp_path / str(at))
        kept = [built.put("x", "x", "kept", n=1)]
        model = built.put("model", "model", "lost")
        lost = [built.put("answer", "completions", "lost", engine=ENGINE, model=model), model]
        built.run(1, kept)
        built.run(2, lost[:1], done=False)
        journal_one(built.home.ledger / ledger_name(lost[-1]))
        (built.home.work / "train-1-aa").mkdir(parents=True)
        (built.home.work / "train-1-aa" / "half").write_text("x")
        age(built.home)
        outcomes.append(run_cut(lambda: collect(dry_run=False, keep_days=7, as_json=False), at))
        store = Store(built.home.artifacts)
        assert digests(kept) <= digests(store.list())
        for ref in store.list():
            store.verify(ref, full=True)
        age(built.home)
        gc(capsys)
        assert there(built) == digests(kept)
        assert {p.name for p in built.home.path.iterdir() if p.name != "locks"} == {
            "artifacts", "results", "runs", "ledger", "work", ".trash",
        }  # fmt: skip
        assert not list(built.home.path.rglob(".tmp-*")) and not list(built.home.work.iterdir())
        assert [p.name for p in built.home.runs.iterdir()] == [f"smart-demo-{run_id(1)}"]
        if outcomes[-1] == 0:
            break
    assert set(outcomes[:-1]) == {KILLED} and outcomes[-1] == 0 and len(outcomes) > 4
