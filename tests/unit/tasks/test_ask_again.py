"""A run becomes a release, and a release is asked again, stage by stage and without a server.

Wrong if an answer is looked up that was to be given anew, if what a crash left of a night is lost, if another night's
answers are taken, or if a release cannot be made or measured and nobody says why.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reasoner.config.smart import SmartVerifyConfig
from reasoner.errors import ArtifactError, DataError, EngineError, UsageError
from reasoner.home import Home
from reasoner.records import ArtifactRef
from reasoner.releases.finding import release_of
from reasoner.releases.night import Night, read_night
from reasoner.releases.outcomes import read_outcomes
from reasoner.releases.release import Release
from reasoner.store import open_ref, verify_ref
from tasks import releases as stages
from tasks.context import run_context
from tests.support.released_run import PROBLEMS, released_run
from tests.support.releases import asked

SCRIPT = "tests.support.releases:prose"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("REASONER_HOME", str(tmp_path))
    return Home(tmp_path)


@pytest.fixture
def folder(home: Home) -> Path:
    return released_run(home, SCRIPT)


@pytest.fixture
def release(home: Home, folder: Path) -> Iterator[Release]:
    found = release_of(folder, "demo", home)
    with run_context("nightly-1", home=home):
        yield found


def ask(release: Release, night: str) -> ArtifactRef:
    (measured,) = release.sets
    stage = stages.ASK_AGAIN["completions"]
    return stage.run(
        stage.bind(measured.name, release.name, night, release.model, measured.stage, measured.arguments)
    )


def compare(release: Release, night: str) -> Night:
    (measured,) = release.sets
    who = (measured.name, release.name, night)
    settings = SmartVerifyConfig.model_validate(measured.judge)
    judged = stages.judge_again.run(stages.judge_again.bind(*who, ask(release, night), settings))
    sets = ({measured.name: measured.outcomes}, {measured.name: judged})
    bound = stages.compare_night.bind(release.name, night, release.model, *sets, 0.01)
    return read_night(open_ref(stages.compare_night.run(bound)))


def test_a_run_becomes_a_release_that_says_how_to_measure_it(
    home: Home, release: Release, folder: Path
) -> None:
    assert release.run == folder.name and release.base == "owner/base" and release.base_revision == "abc123"
    (measured,) = release.sets
    assert measured.name == "held-out" and measured.stage == "answer"
    assert measured.arguments["model"]["digest"] == release.model.digest
    before = read_outcomes(open_ref(measured.outcomes), "attempts")
    assert len(before) == PROBLEMS and all(before.values())
    assert Release.from_row(json.loads(json.dumps(release.to_row()))) == release


def test_every_night_asks_anew_and_an_unchanged_model_has_no_drop(home: Home, release: Release) -> None:
    before, ledger = asked(home.path), sorted(home.ledger.rglob("*.jsonl"))
    sizes = [path.stat().st_size for path in ledger]
    first = compare(release, "2026-11-01")
    assert asked(home.path) == before + PROBLEMS and not first.worse and first.notes == ()
    compare(release, "2026-11-02")
    assert asked(home.path) == before + 2 * PROBLEMS
    assert [path.stat().st_size for path in sorted(home.ledger.rglob("*.jsonl"))] == sizes, (
        "the ledger stays as it was"
    )
    assert ask(release, "2026-11-03").digest != ask(release, "2026-11-04").digest, (
        "each night's answers are its own"
    )
    assert not list(home.work.glob("*"))


def test_a_planted_drop_is_seen(home: Home, release: Release) -> None:
    (home.path / "worse").touch()
    night = compare(release, "2026-11-01")
    change = night.sets["held-out"]
    assert (
        night.worse == ("held-out",) and change.gained == 0 and change.lost > PROBLEMS / 4 and change.p < 1e-4
    )


def test_what_a_crash_left_of_a_night_is_not_asked_again(home: Home, release: Release) -> None:
    before = asked(home.path)
    (home.path / "dies-after").write_text(str(before + 40))
    with pytest.raises(EngineError):
        ask(release, "2026-11-01")
    (home.path / "dies-after").unlink()
    died = asked(home.path)
    ask(release, "2026-11-01")
    assert died - before == 41 and asked(home.path) <= before + PROBLEMS + 1


def test_its_key_holds_night_release_and_model(release: Release) -> None:
    (measured,) = release.sets
    stage = stages.ASK_AGAIN["completions"]

    def key(night: str = "a", name: str = "demo", model: ArtifactRef = release.model) -> str:
        return stage.key(stage.bind(measured.name, name, night, model, measured.stage, measured.arguments))

    other = ArtifactRef("model", "0" * 64, release.model.uri)
    assert len({key(), key(night="b"), key(name="other"), key(model=other)}) == 4 and key() == key()


def test_it_can_be_sent_to_another_process(release: Release) -> None:
    (measured,) = release.sets
    stage = stages.ASK_AGAIN["completions"]
    bound = stage.bind(measured.name, "demo", "n", release.model, measured.stage, measured.arguments)
    assert stage.gpu and stage.decode(json.loads(json.dumps(stage.encode(bound)))) == bound


def test_what_cannot_be_released_or_measured_is_told(home: Home, release: Release, folder: Path) -> None:
    result = folder / "result.json"
    kept = result.read_text()
    result.unlink()
    with pytest.raises(UsageError, match="has not finished"):
        release_of(folder, "demo", home)
    result.write_text(json.dumps({"report": json.loads(kept)["report"]}))
    with pytest.raises(UsageError, match="leaves no model"):
        release_of(folder, "demo", home)
    result.write_text(kept)
    config = folder / "config.json"
    old = json.loads(config.read_text())
    config.write_text(json.dumps({**old, "of_another_version": 1}))
    with pytest.raises(DataError, match="of_another_version"):
        release_of(folder, "demo", home)
    config.write_text(json.dumps({"method": "nightly"}))
    with pytest.raises(UsageError, match="method 'nightly', which leaves no model"):
        release_of(folder, "demo", home)
    config.write_text(json.dumps(old))
    (open_ref(release.model) / "config.json").write_text("changed")
    with pytest.raises(ArtifactError):
        release_of(folder, "demo", home)
    with pytest.raises(ArtifactError):
        ask(release, "2026-11-01")


def test_its_hub_revision_is_that_of_its_publication(home: Home, release: Release, folder: Path) -> None:
    from reasoner.store import Store

    facts = {"arguments": {"model": release.model.to_row()}, "repo": "me/demo", "commit": "77aa"}
    with Store(home.artifacts).writer("publication", metadata=facts) as draft:
        (draft.path / "publication.json").write_text("{}")
    found = release_of(folder, "demo", home)
    assert (found.hub_repo, found.hub_revision) == ("me/demo", "77aa")


def test_what_changed_around_the_model_is_said_by_its_answers(release: Release) -> None:
    manifest = verify_ref(release.sets[0].outcomes)
    asked_in = verify_ref(ArtifactRef.from_row(manifest.metadata["arguments"]["completions"]))
    assert stages._made_in(release.sets[0].outcomes) == asked_in.metadata["environment"]
