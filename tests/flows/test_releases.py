"""Releases, nights and publishing on a real server: a real run is released, measured again, made worse, published.

Wrong if a night gives back what was answered before, if a drop is not told or does not fail its run, if one release
that can't be measured keeps others from it, if the schedule does not fire, or if anything is public unasked.
"""

import http.server
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import ArtifactFilter
from prefect.settings import PREFECT_API_URL
from typer.testing import CliRunner

from flows.cli import app
from flows.commands import run
from flows.commands.pipelines import find
from flows.nightly import nightly
from flows.publish import publish
from flows.smart import smart
from reasoner.errors import ConfigurationError, InfrastructureError, PublishError, RegressionError, UsageError
from reasoner.home import Home
from reasoner.records import ArtifactRef
from reasoner.releases.book import Book
from reasoner.releases.history import History
from reasoner.releases.release import Release
from reasoner.store import open_ref
from tests.flows.test_pools import Services
from tests.support.hub_server import TOKEN, serve_hub
from tests.support.releases import asked
from tests.support.services import ask, eventually
from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.flows, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("releases")


@pytest.fixture(autouse=True)
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One home for the module: its run is made once. What makes the model worse goes with the test."""
    found = folder / "home"
    monkeypatch.setenv("REASONER_HOME", str(found))
    for name in ("worse", "noisy"):
        (found / name).unlink(missing_ok=True)
    return found


@pytest.fixture
def release(folder: Path, home: Path) -> Release:
    """The release `demo` of a real run of one epoch, made by the command."""
    book = Book(Home(home))
    if not any(each.name == "demo" for each in book.list()):
        home.mkdir(exist_ok=True)
        model = make_model(folder / "model")
        settings = [
            f"model.path={model}", "engine=scripted", "engine.options.script=tests.support.releases:drifting",
            "epochs=1", "data=demo-small", "few_shot.strategies=[cot,pot]", "train.precision=fp32", "train.lr=1e-2",
            "train.max_length=512", "train.batch_size=16", "train.min_records=4",
        ]  # fmt: skip
        smart("smart-demo", settings)
        told = command("release", "smart-demo", "demo")
        assert "measured on held-out" in told
    return book.get("demo")


def command(*words: str) -> str:
    """What `reasoner WORDS` prints; raises what it raises."""
    from flows.commands import releases

    if not any(group.name == "release" for group in app.registered_groups):
        releases.add_to(app)
    result = CliRunner().invoke(app, list(words), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout


def report_of(ref: ArtifactRef) -> dict[str, Any]:
    return json.loads((open_ref(ref) / "report.json").read_text())


def artifacts(key: str) -> list[Any]:
    with get_client(sync_client=True) as client:
        wanted = ArtifactFilter.model_validate({"key": {"any_": [key]}})
        return client.read_artifacts(artifact_filter=wanted)


def test_a_run_is_released_under_a_name_that_is_not_taken_twice(home: Path, release: Release) -> None:
    run = json.loads((home / "runs" / release.run / "result.json").read_text())
    assert release.model == ArtifactRef.from_row(run["model"]) and release.method == "smart"
    (measured,) = release.sets
    table = json.loads((open_ref(measured.evaluation) / "evaluation.json").read_text())
    assert table["name"] == "held-out" and measured.stage == "answer"
    assert release.base_digest and release.hub_revision is None and release.date[:2] == "20"
    before = (home / "releases.json").read_bytes()
    with pytest.raises(UsageError, match="'demo' is there already"):
        command("release", release.run, "demo")
    assert (home / "releases.json").read_bytes() == before
    assert "demo" in command("release", "add", release.run, "demo", "--replace")
    assert release.model.digest[:16] in command("release", "list")
    shown = json.loads(command("release", "show", "demo", "--json"))
    assert (
        shown["sets"] == {"held-out": measured.evaluation.digest} and shown["model"] == release.model.digest
    )
    command("release", release.run, "other")
    assert "no release any more" in command("release", "remove", "other")
    with pytest.raises(UsageError, match="no run 'nothing'"):
        command("release", "nothing", "name")
    with pytest.raises(UsageError, match="can't name a release"):
        command("release", release.run, "Bad_Name")
    unfinished = home / "runs" / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.json").write_text('{"method": "smart"}')
    with pytest.raises(UsageError, match="has not finished"):
        command("release", "unfinished", "name")
    (unfinished / "config.json").unlink()


def test_a_night_asks_the_model_again_and_an_unchanged_one_passes(home: Path, release: Release) -> None:
    n = len((open_ref(release.sets[0].outcomes) / "attempts.jsonl").read_text().splitlines())
    assert n > 30
    before = asked(home)
    first = report_of(nightly("nightly", ["night=2026-11-01"]))
    assert asked(home) == before + n, "every question of the set is asked once, none is looked up"
    change = first["nights"][0]["sets"]["held-out"]
    assert change["lost"] == change["gained"] == 0 and change["n"] == n and not change["worse"]

    nightly("nightly", ["night=2026-11-01"])
    assert asked(home) == before + n, "what is done of a night is not done again"
    (home / "noisy").write_text("x")
    second = report_of(nightly("nightly", ["night=2026-11-02"]))
    assert asked(home) == before + 2 * n, "another night measures anew"
    assert second["nights"][0]["sets"]["held-out"]["lost"] > 0, "and sees what has changed"

    assert [night.night for night in History(Home(home), "demo").read()] == ["2026-11-01", "2026-11-02"]
    assert not list(home.glob("work/*")), "a night's ledger goes with its stage"
    newest = max(artifacts("release-demo"), key=lambda a: a.created)
    assert (
        "2026-11-01" in newest.data
        and "2026-11-02" in newest.data
        and "at release (first bar)" in newest.data
    )


class Listener(http.server.BaseHTTPRequestHandler):
    """Keeps what a notification block sends."""

    heard: list[str] = []  # noqa: RUF012

    def do_POST(self) -> None:
        self.heard.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def listener() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()


def test_a_drop_fails_the_run_and_is_told_by_event_and_notification(
    home: Path, release: Release, listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    from prefect.blocks.notifications import CustomWebhookNotificationBlock

    block = CustomWebhookNotificationBlock(
        name="oncall", url=listener, json_data={"text": "{{subject}} {{body}}"}
    )
    block.save("oncall", overwrite=True)
    slug = block.get_block_type_slug()
    (home / "worse").touch()
    since = datetime.now(UTC) - timedelta(seconds=5)
    with pytest.raises(RegressionError, match=r"release demo has become worse: held-out: \d+/\d+ at release"):
        nightly("nightly", ["night=2026-11-03", f"notify={slug}/oncall"])
    assert len(Listener.heard) == 1 and "demo has become worse" in Listener.heard[0]
    (event,) = eventually(lambda: events(str(PREFECT_API_URL.value()), since), "the event")
    assert event["resource"]["prefect.resource.id"] == "reasoner.release.demo"
    assert event["payload"]["sets"]["held-out"]["worse"] and event["payload"]["night"] == "2026-11-03"
    assert History(Home(home), "demo").read()[-1].worse == ("held-out",)

    with pytest.raises(RegressionError):
        nightly("nightly", ["night=2026-11-03"])
    assert "nobody was notified: no block is configured" in caplog.text
    with pytest.raises(RegressionError):
        nightly("nightly", ["night=2026-11-03", "notify=slack-webhook/absent"])
    assert "block 'slack-webhook/absent' can't be used" in caplog.text and len(Listener.heard) == 1


def events(url: str, since: datetime) -> list[dict[str, Any]]:
    wanted = {
        "event": {"name": ["reasoner.release.regressed"]},
        "occurred": {"since": since.isoformat(), "until": datetime.now(UTC).isoformat()},
    }
    return list(ask("POST", f"{url}/events/filter", filter=wanted)["events"])


def test_one_that_cannot_be_measured_keeps_no_other_from_it(home: Path, release: Release) -> None:
    import dataclasses

    gone = ArtifactRef("model", "0" * 64, str(home / "artifacts" / "model" / ("0" * 64)))
    broken = dataclasses.replace(release, name="broken", model=gone)
    Book(Home(home)).add(broken)
    try:
        with pytest.raises(InfrastructureError, match=r"not measured: broken: .*is missing"):
            nightly("nightly", ["night=2026-11-04"])
    finally:
        Book(Home(home)).remove("broken")
    assert History(Home(home), "demo").read()[-1].night == "2026-11-04"
    with pytest.raises(UsageError, match=r"no release 'dmeo'.*Did you mean 'demo'"):
        nightly("nightly", ["releases=[dmeo]"])


def test_the_command_runs_a_night(release: Release, capsys: pytest.CaptureFixture[str]) -> None:
    run._here(find("nightly"), "nightly", ["night=2026-11-05"])
    said = capsys.readouterr().out
    assert "demo" in said and "held-out" in said and "done in" in said


def test_publishing_is_off_without_a_repository_and_private_with_one(
    home: Path, release: Release, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="publishing is off"):
        publish("publish", ["release=demo"])
    with pytest.raises(ConfigurationError, match="release=NAME or run=RUN"):
        publish("publish", ["repo=me/demo"])
    with serve_hub() as hub:
        for name, value in {
            "HF_ENDPOINT": hub.url,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(tmp_path / "hf"),
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        with pytest.raises(PublishError, match="no Hub token"):
            publish("publish", ["release=demo", "repo=me/demo"])
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        publish("publish", ["release=demo", "repo=me/demo"])
        repository = hub.repositories["me/demo"]
        card = repository.files["README.md"].decode()
        assert repository.private and len(repository.commits) == 2 and "model.safetensors" in repository.files
        assert "| held-out |" in card and str(home) not in card and release.model.digest in card
        found = Book(Home(home)).get("demo")
        assert (found.hub_repo, found.hub_revision) == ("me/demo", repository.head)
        publish("publish", [f"run={release.run}", "repo=me/demo"])
        assert len(repository.commits) == 2, "what is there is not pushed again, and the Hub was asked"


@pytest.fixture
def services(folder: Path, release: Release) -> Iterator[Services]:
    found = Services(folder)
    try:
        done = found.reasoner("up", "--port", str(found.port))
        assert done.returncode == 0, done.stderr
        yield found
    finally:
        found.reasoner("down")


def test_the_schedule_is_deployed_fires_and_flags_a_planted_drop(home: Path, services: Services) -> None:
    deployed = services.get("deployments/name/nightly/nightly")
    (schedule,) = deployed["schedules"]  # type: ignore[index]
    assert (
        schedule["schedule"]["cron"] == "0 3 * * *" and schedule["active"] and schedule["slug"] == "nightly"
    )
    assert set(deployed["tags"]) == {"releases", "nightly"} and deployed["version"] == "0.1.0"  # type: ignore[index]
    assert deployed["work_pool_name"] == "cpu"  # type: ignore[index]
    assert not services.get("deployments/name/publish/publish")["schedules"]  # type: ignore[index]

    (home / "worse").touch()
    since = datetime.now(UTC)
    # Again and again: a busy machine may have made a plan only after the first of these moments.
    soon = {"interval": 20, "anchor_date": (since + timedelta(seconds=8)).isoformat()}
    address = f"{services.url}/deployments/{deployed['id']}"  # type: ignore[index]
    ask("PATCH", f"{address}/schedules/{schedule['id']}", schedule=soon, active=True, slug="nightly")
    # The scheduler's own work, now and not at its next turn; a server that cannot plan says so here.
    ask("POST", f"{address}/schedule", min_runs=3)

    def ended() -> Any:
        runs = services.get("flow_runs/filter", sort="EXPECTED_START_TIME_ASC", limit=50)
        return [
            r
            for r in runs
            if r["name"] == "nightly" and r["state"]["type"] in ("FAILED", "CRASHED", "COMPLETED")
        ]  # type: ignore[attr-defined]

    run = eventually(ended, "the scheduled run ends")[0]
    assert run["auto_scheduled"] and run["work_pool_name"] == "cpu"
    assert run["state"]["type"] == "FAILED" and "demo has become worse" in run["state"]["message"]
    runs = services.get("flow_runs/filter", sort="EXPECTED_START_TIME_ASC", limit=50)
    children = [r for r in runs if r["parent_task_run_id"]]  # type: ignore[attr-defined]
    assert {(r["name"], r["work_pool_name"]) for r in children} == {
        ("ask-again-completions demo held-out", "gpu")
    }
    assert eventually(lambda: events(services.url, since - timedelta(seconds=5)), "the event")
    trends = services.get("artifacts/filter", artifacts={"key": {"any_": ["release-demo"]}})
    assert trends and all("WORSE" in each["data"] for each in trends)  # type: ignore[arg-type, index]
