"""The stages of a night: a release's evaluation made again, compared with its first one; and publication.

`ask-again` and `judge-again` call the stages that the release names with the arguments that it keeps. The night is
among their inputs, so that no night's result is another's; and nothing is looked up in the ledger, which would give
back what the model said on the day of its release.
"""

from typing import Any

from reasoner.config.smart import SmartVerifyConfig
from reasoner.records import ArtifactRef
from reasoner.releases import night as nights
from reasoner.releases.outcomes import read_outcomes
from reasoner.releases.release import Release
from reasoner.releases.trend import page
from reasoner.stages import publication, verdicts
from reasoner.stages.smart import write_json
from reasoner.store import Draft, open_ref, verify_ref
from tasks.context import bench, forgetting
from tasks.stage import stage


def _of(arguments: dict[str, Any]) -> str:
    return f"{arguments['release']} {arguments['name']}"


def _ask(
    out: Draft, name: str, release: str, night: str, model: ArtifactRef, of: str, arguments: dict[str, Any]
) -> None:
    """Ask a released model again, whatever it answered before. `of` is the stage that asks."""
    from tasks.registry import find

    verify_ref(model)
    asking = find(of)
    with forgetting():
        asking.function(out, **asking.decode(arguments))
    _sign(out, release, night)


def _asking(kind: str) -> Any:
    """One stage a kind of artifact: a stage says what kind it makes."""
    return stage(f"ask-again-{kind}", kind=kind, version=1, gpu=True, label=_of)(_ask)


ASK_AGAIN = {kind: _asking(kind) for kind in ("completions", "plan-runs", "evaluation")}


@stage("judge-again", kind="attempts", version=1, label=_of)
def judge_again(
    out: Draft, name: str, release: str, night: str, completions: ArtifactRef, config: SmartVerifyConfig
) -> None:
    """Judge a night's completions; a verdict of another night is not taken, for the verifier may have changed."""
    out.metadata |= verdicts.judge(out.path, open_ref(completions), config, bench().child_progress)
    _sign(out, release, night)


@stage("compare-night", kind="night", version=1, label=lambda a: a["release"])
def compare_night(
    out: Draft, release: str, night: str, model: ArtifactRef, before: dict[str, ArtifactRef],
    now: dict[str, ArtifactRef], alpha: float,
) -> None:  # fmt: skip
    """Every set of a release against its own evaluation: exact one-sided McNemar, Holm over the sets."""
    sets = {name: (_outcomes(before[name]), _outcomes(now[name])) for name in before}
    notes = {
        note: None for name in before for note in nights.changed(_made_in(before[name]), _made_in(now[name]))
    }
    found = nights.judge(release, night, model.digest, sets, alpha, tuple(notes))
    nights.write_night(out.path, found)
    out.metadata |= {"worse": list(found.worse)}


def _sign(out: Draft, release: str, night: str) -> None:
    """Equal artifacts are stored once, with the facts of the first; a night's own facts must not be lost so."""
    write_json(out.path / "asked.json", {"release": release, "night": night})


def _made_in(ref: ArtifactRef) -> dict[str, Any]:
    """The environment in which the model was asked: that of the completions where others judged them."""
    facts = verify_ref(ref).metadata
    asked = facts.get("arguments", {}).get("completions")
    if asked is not None:
        facts = verify_ref(ArtifactRef.from_row(asked)).metadata
    return dict(facts.get("environment", {}))


def _outcomes(ref: ArtifactRef) -> dict[str, bool | None]:
    return read_outcomes(open_ref(ref), ref.kind)


@stage("night-report", kind="report", version=1, label=lambda a: a["night"])
def night_report(out: Draft, night: str, found: tuple[ArtifactRef, ...], failed: tuple[str, ...]) -> None:
    """The night as a page: every release in sentences, and what could not be measured."""
    given = [nights.read_night(open_ref(ref)) for ref in found]
    (out.path / "report.md").write_text(page(night, given, failed), encoding="utf-8")
    facts = {"night": night, "nights": [each.to_row() for each in given], "failed": list(failed)}
    write_json(out.path / "report.json", facts)


@stage("publish-release", kind="publication", version=1, label=lambda a: a["release"]["name"])
def publish_release(
    out: Draft,
    release: dict[str, Any],
    model: ArtifactRef,
    repo: str,
    private: bool,
    command: str,
    asked: str,
) -> None:
    """Push a release's model to the Hub. `asked` is the flow run: the Hub is asked each time what it holds."""
    given = Release.from_row(release)
    out.metadata |= publication.publish_release(
        out.path, bench(), given, open_ref(model), repo, private, command
    )
