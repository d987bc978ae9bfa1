"""The stages that publish a planner or a release: card from what was measured, scan, push."""

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from reasoner.config.kinds import MULTI_TURN
from reasoner.config.planner import PublishConfig
from reasoner.errors import UsageError
from reasoner.hub.card import CardFacts, planner_card, read_evaluations
from reasoner.hub.publish import publish
from reasoner.records import ArtifactRef
from reasoner.releases.card import release_card
from reasoner.releases.outcomes import read_outcomes
from reasoner.releases.release import Release
from reasoner.stages.smart import write_json
from reasoner.store import open_ref, verify_ref
from reasoner.training.adapter import TRAINING
from reasoner.training.launch import read_json
from reasoner.workbench import Workbench

PACKAGES = ("transformers", "peft", "trl", "torch")


def publish_planner(
    out: Path, bench: Workbench, model: Path, base_name: str, adapter: Path, evaluations: Sequence[Path],
    config: PublishConfig, *, digests: dict[str, str], parity: dict[str, Any], command: str,
) -> dict[str, Any]:  # fmt: skip
    """Push the merged model; `publication.json` and the card stay with the run. Raises PublishError."""
    card = planner_card(
        CardFacts(
            repo=config.repo, base_model=base_name, digests=digests, training=read_json(adapter / TRAINING),
            parity=parity, evaluations=read_evaluations(evaluations), commands=(command,),
            versions={name: version(name) for name in PACKAGES},
        )
    )  # fmt: skip
    return _pushed(out, bench, model, card, config.repo, config.private)


def publish_release(
    out: Path, bench: Workbench, release: Release, model: Path, repo: str, private: bool, command: str
) -> dict[str, Any]:
    """Push a release's model. Raises PublishError, and UsageError for a release that is no whole model."""
    require_whole_model(release)
    digests = {"digest of the model": release.model.digest, "digest of the base": release.base_digest}
    if release.method == "planner":
        adapter = ArtifactRef.from_row(release.sets[0].arguments["adapter"])
        merged = verify_ref(release.model)
        return publish_planner(
            out, bench, model, release.base, open_ref(adapter), [open_ref(s.evaluation) for s in release.sets],
            PublishConfig(enabled=True, repo=repo, private=private),
            digests=digests | {"digest of the adapter": adapter.digest},
            parity=dict(merged.metadata.get("parity") or {}), command=command,
        )  # fmt: skip
    outcomes = {s.name: read_outcomes(open_ref(s.outcomes), s.outcomes.kind) for s in release.sets}
    versions = {name: version(name) for name in PACKAGES}
    card = release_card(release, repo, outcomes, digests=digests, versions=versions, command=command)
    return _pushed(out, bench, model, card, repo, private)


def require_whole_model(release: Release) -> None:
    """UsageError for a multi-turn release, which is a base with adapters and not one folder to load."""
    if release.method in MULTI_TURN:
        raise UsageError(
            f"{release.run} is a base with adapters (method {release.method}), not one model; publish the adapters with"
            " `hf upload`, or merge one with `reasoner merge-and-push`"
        )


def _pushed(out: Path, bench: Workbench, model: Path, card: str, repo: str, private: bool) -> dict[str, Any]:
    """Push with a card; `publication.json` and the card stay with the run."""
    (out / "README.md").write_text(card, encoding="utf-8")
    done = publish(model, card, repo, private=private, work=bench.work, log=bench.logs / "publish.log")
    write_json(out / "publication.json", done)
    return done
