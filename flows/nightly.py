"""Every release, measured again and compared with itself: has anything around the model made it worse?

releases.json ── a release and set: ask again ─ (judge again) ─┬─ compare ── trend, history
                                  its own evaluation ──────────┘       └─ worse: event, notification, failed run
"""

from datetime import UTC, datetime

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact
from prefect.runtime import flow_run

from flows.alarm import alarm
from reasoner.config.compose import load
from reasoner.config.releases import NightlyConfig
from reasoner.config.smart import SmartVerifyConfig
from reasoner.errors import InfrastructureError, RegressionError
from reasoner.home import Home
from reasoner.records import ArtifactRef
from reasoner.releases.book import Book
from reasoner.releases.history import History
from reasoner.releases.night import Night, read_night
from reasoner.releases.release import Release, ReleasedSet
from reasoner.releases.trend import trend
from reasoner.store import open_ref
from tasks import registry
from tasks import releases as stages
from tasks.context import run_context


@flow(name="nightly", flow_run_name="{pipeline}")
def nightly(pipeline: str = "nightly", overrides: list[str] | None = None) -> ArtifactRef:
    """Measure every release again; returns the report.

    Raises RegressionError, after all of them, where one is significantly worse, and InfrastructureError where one
    could not be measured; neither keeps the others from being measured.
    """
    config = load(pipeline, overrides or [], NightlyConfig)
    night = config.night or tonight()
    with run_context(
        f"{pipeline}-{flow_run.id}",
        gpu_pool=config.compute.gpu_pool,
        idle_seconds=config.compute.idle_seconds,
    ) as run:
        run.save_config(config)
        found: list[ArtifactRef] = []
        worse: list[str] = []
        failed: list[str] = []
        for release in chosen(config, run.home):
            try:
                ref = measure(release, night, config.alpha)
                seen = read_night(open_ref(ref))
                show(release, seen, run.home)
            except Exception as error:  # whatever became of one, the others are measured
                get_run_logger().exception("%s was not measured", release.name)
                failed.append(f"{release.name}: {str(error).splitlines()[0] if str(error) else repr(error)}")
                continue
            found.append(ref)
            if seen.worse:
                worse.append(alarm(release, seen, config.notify))
        report = stages.night_report(night, tuple(found), tuple(failed))
        run.finish(report)
        page = run.folder / "report.md"
    if worse:
        raise RegressionError(f"{'; '.join(worse)}; see {page}")
    if failed:
        raise InfrastructureError(f"not measured: {'; '.join(failed)}; see {page}")
    return report


def tonight() -> str:
    """The day for which this run was scheduled, UTC: a run that starts or is retried after midnight keeps its night."""
    planned = flow_run.scheduled_start_time or datetime.now(UTC)
    return planned.astimezone(UTC).date().isoformat()


def chosen(config: NightlyConfig, home: Home) -> list[Release]:
    """The releases that are to be measured. Raises UsageError for an unknown name."""
    book = Book(home)
    return [book.get(name) for name in config.releases] if config.releases else book.list()


def measure(release: Release, night: str, alpha: float) -> ArtifactRef:
    """All sets of a release again, and the comparison."""
    before = {each.name: each.outcomes for each in release.sets}
    now = {each.name: again(release, each, night) for each in release.sets}
    return stages.compare_night(release.name, night, release.model, before, now, alpha)


def again(release: Release, measured: ReleasedSet, night: str) -> ArtifactRef:
    """One set: the model is asked again, and its answers are judged again where that is a stage of its own."""
    ask = stages.ASK_AGAIN[registry.find(measured.stage).kind]
    who = (measured.name, release.name, night)
    answers = ask(*who, release.model, measured.stage, measured.arguments)
    if measured.judge is None:
        return answers
    return stages.judge_again(*who, answers, SmartVerifyConfig.model_validate(measured.judge))


def show(release: Release, night: Night, home: Home) -> None:
    """Write the night down and draw the release's trend, one Prefect artifact key a release."""
    history = History(home, release.name)
    history.add(night)
    nights = history.read(release.model.digest)
    create_markdown_artifact(
        trend(release, nights),
        key=f"release-{release.name}",
        description=f"{release.name}, {len(nights)} nights",
    )
