"""Makes a release of a finished run: its model, how each evaluation set was measured, and how to do that again.

The settings come from the run's own configuration and its report's inputs, not from what the artifacts say of their
making: equal artifacts are stored once, with the words of the first run that made them.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reasoner.config.base import Section
from reasoner.config.kinds import MULTI_TURN
from reasoner.errors import ArtifactError, DataError, UsageError
from reasoner.home import Home
from reasoner.methods.planner.evaluation import TRAINED
from reasoner.records import ArtifactRef
from reasoner.releases.release import Release, ReleasedSet, check_name
from reasoner.store import Store

Facts = dict[str, Any]


def release_of(folder: Path, name: str, home: Home) -> Release:
    """The release `name` of the run in `folder`.

    Raises UsageError for a run that has not finished or left no model, ArtifactError where something of it is gone.
    """
    check_name(name)
    result, config = _read(folder / "result.json"), _read(folder / "config.json")
    if "model" not in result:
        raise UsageError(f"run {folder.name} leaves no model, so there is nothing to release")
    store, method = Store(home.artifacts), str(config.get("method", ""))
    model, report = (ArtifactRef.from_row(result[key]) for key in ("model", "report"))
    store.verify(model)
    inputs = _arguments(store, report)
    sets = _sets_of(method, folder.name)(store, config, inputs, model)
    for each in sets:
        store.verify(each.outcomes)
    base = ArtifactRef.from_row(inputs["base"])
    facts = store.manifest(base).metadata
    repo, revision = _published(store, model)
    return Release(
        name=name, method=method, model=model, base=str(facts.get("model", base.digest[:16])),
        base_digest=base.digest, base_revision=facts.get("revision"), run=folder.name,
        date=datetime.now(UTC).isoformat(timespec="seconds"), sets=tuple(sets), hub_repo=repo, hub_revision=revision,
    )  # fmt: skip


def _sets_of(method: str, run: str) -> Callable[[Store, Facts, Facts, ArtifactRef], list[ReleasedSet]]:
    if method == "smart":
        return _smart_sets
    if method == "planner":
        return _planner_sets
    if method in MULTI_TURN:
        return _multi_turn_sets
    raise UsageError(f"run {run} is of method {method!r}, which leaves no model to release")


def _smart_sets(store: Store, config: Facts, inputs: Facts, model: ArtifactRef) -> list[ReleasedSet]:
    """First attempts of the epoch whose adapter the model was merged from."""
    from reasoner.config.smart import SmartConfig

    settings = _validated(SmartConfig, config)
    adapter = _arguments(store, model)["adapter"]["digest"]
    labels = [t["label"] for t in inputs["trained"] if t["adapter"]["digest"] == adapter]
    if not labels:
        raise DataError(
            "the report does not say which training made the model; run it again, then release it"
        )
    found = []
    for evaluation, given in _evaluations(store, inputs):
        answered = next(a for a in given["answered"] if a["label"] == labels[0])
        arguments = {
            "problems": inputs["problems"], "model": model.to_row(), "split": f"eval-{given['name']}",
            "how": settings.answering(1).model_dump(mode="json"), "seed": settings.seed, "epoch": 0,
        }  # fmt: skip
        found.append(
            ReleasedSet(
                given["name"], evaluation, ArtifactRef.from_row(answered["turn1"]), "answer", arguments,
                settings.verify.model_dump(mode="json"),
            )
        )  # fmt: skip
    return found


def _planner_sets(store: Store, config: Facts, inputs: Facts, model: ArtifactRef) -> list[ReleasedSet]:
    """The trained arm: the last adapter plans, the bare base works."""
    from reasoner.config.planner import PlannerConfig

    settings = _validated(PlannerConfig, config)
    found = []
    for evaluation, given in _evaluations(store, inputs):
        arguments = {
            "problems": inputs["problems"], "model": inputs["base"], "adapter": inputs["adapters"][-1],
            "split": f"eval-{given['name']}", "names": [TRAINED],
            "config": settings.evaluation.model_dump(mode="json"), "worker": settings.worker.model_dump(mode="json"),
            "prompt": settings.prompt.model_dump(mode="json"), "engine": settings.engine.model_dump(mode="json"),
        }  # fmt: skip
        runs = ArtifactRef.from_row(given["runs"])
        found.append(ReleasedSet(given["name"], evaluation, runs, "plan-arms", arguments))
    return found


def _multi_turn_sets(store: Store, config: Facts, inputs: Facts, model: ArtifactRef) -> list[ReleasedSet]:
    """Both turns on the test problems; the correction model, if there is one, is part of the release."""
    from reasoner.config.multiturn import MultiTurnConfig

    settings = _validated(MultiTurnConfig, config)
    final = ArtifactRef.from_row(inputs["final"])
    arguments = {
        "problems": inputs["problems"], "model": inputs["base"],
        "correction": _arguments(store, model).get("correction"), "trained": model.to_row(),
        "config": settings.measured().model_dump(mode="json"),
    }  # fmt: skip
    return [ReleasedSet("test", final, final, "multiturn-evaluate", arguments)]


def _evaluations(store: Store, inputs: Facts) -> list[tuple[ArtifactRef, Facts]]:
    """The evaluations that a report was made from, each with its inputs."""
    refs = [ArtifactRef.from_row(row) for row in inputs["evaluations"]]
    return [(ref, _arguments(store, ref)) for ref in refs]


def _published(store: Store, model: ArtifactRef) -> tuple[str | None, str | None]:
    """Repository and commit of the newest publication of a model."""
    found: list[tuple[str, str, str]] = []
    for ref in store.list("publication"):
        manifest = store.manifest(ref)
        facts = manifest.metadata
        if facts.get("arguments", {}).get("model", {}).get("digest") == model.digest:
            found.append((manifest.created, str(facts["repo"]), str(facts["commit"])))
    return max(found)[1:] if found else (None, None)


def _arguments(store: Store, ref: ArtifactRef) -> Facts:
    found = store.manifest(ref).metadata.get("arguments")
    if not isinstance(found, dict):
        raise ArtifactError(f"{ref.kind} {ref.digest[:12]} does not say what it was made from")
    return dict(found)


def _validated(section: type[Section], config: Facts) -> Any:
    from pydantic import ValidationError

    try:
        return section.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise DataError(
            f"the run's config.json is not one of this version ({where}: {first['msg']}); run it again, then release it"
        ) from None


def _read(path: Path) -> Facts:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"run {path.parent.name} has not finished (no {path.name}); run it again to its end, then release it"
        ) from None
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error})") from None
    return dict(found)
