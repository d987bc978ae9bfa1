"""A release or a run's model to a private repository on the Hub, as one commit; nothing without a repository."""

import json

from prefect import flow
from prefect.runtime import flow_run

from reasoner.audit.runs import find_run
from reasoner.config.compose import load
from reasoner.config.releases import PublishingConfig
from reasoner.home import Home
from reasoner.hub.publish import require_token
from reasoner.records import ArtifactRef
from reasoner.releases.book import Book
from reasoner.releases.finding import release_of
from reasoner.releases.release import Release
from reasoner.stages.publication import require_whole_model
from tasks import releases as stages
from tasks.context import RunContext, run_context

UNNAMED = "unreleased"


@flow(name="publish", flow_run_name="{pipeline}")
def publish(pipeline: str = "publish", overrides: list[str] | None = None) -> ArtifactRef:
    """Push what the configuration names; returns the publication. Raises ConfigurationError without a repository."""
    config = load(pipeline, overrides or [], PublishingConfig)
    config.require_target()
    require_token(config.repo)
    with run_context(f"{pipeline}-{flow_run.id}") as run:
        run.save_config(config)
        release = wanted(config, run.home)
        require_whole_model(release)
        command = " ".join(["reasoner run", pipeline, *(overrides or [])])
        publication = stages.publish_release(
            release.to_row(), release.model, config.repo, config.private, command, str(flow_run.id)
        )
        facts = run.store.manifest(publication).metadata
        if config.release:
            Book(run.home).published(release.name, release.model.digest, config.repo, str(facts["commit"]))
        leave(run, publication)
        return publication


def leave(run: RunContext, publication: ArtifactRef) -> None:
    """The card and where the publication is, in the run's folder."""
    card = run.store.open(publication) / "README.md"
    (run.folder / "report.md").write_text(card.read_text(encoding="utf-8"), encoding="utf-8")
    facts = {"publication": publication.to_row()}
    (run.folder / "result.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def wanted(config: PublishingConfig, home: Home) -> Release:
    """The release that is named, or the run's model as one without a name."""
    if config.release:
        return Book(home).get(config.release)
    return release_of(find_run(config.run, home), UNNAMED, home)
