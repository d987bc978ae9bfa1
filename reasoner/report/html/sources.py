"""What belongs to a run: its configuration and its artifacts, with how each was made.

A finished run's artifacts are those that its report was made from. An unfinished run's are those in the store whose
whole making agrees with its configuration.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from reasoner.audit.runs import Lineage
from reasoner.config.grpo import GrpoConfig
from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.planner import PlannerConfig
from reasoner.config.smart import ComputeConfig, SmartConfig
from reasoner.errors import ArtifactError, DataError, UsageError
from reasoner.home import Home
from reasoner.prompts.chat import TOKENIZER_FILES
from reasoner.records import ArtifactRef
from reasoner.store import Store

Method = Literal["smart", "planner", "multiturn"]
RESULT, CONFIG = "result.json", "config.json"


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact of the run and what its manifest says."""

    ref: ArtifactRef
    stage: str
    label: str
    created: str
    """UTC, ISO 8601."""
    size: int
    """Bytes."""
    rows_size: int
    """Bytes of its JSON Lines, which is what a report reads."""
    facts: dict[str, Any]
    """The manifest's metadata."""

    @property
    def arguments(self) -> dict[str, Any]:
        """What the stage was called with."""
        return dict(self.facts.get("arguments", {}))

    @property
    def made_from(self) -> list[ArtifactRef]:
        """The artifacts among its arguments, each once."""
        return list({ref.digest: ref for ref in refs_in(self.arguments)}.values())


@dataclass
class RunSource:
    """A run as it lies on disk. `missing` grows when an artifact turns out to be gone or altered."""

    name: str
    folder: Path
    method: Method
    config: dict[str, Any]
    finished: bool
    store: Store
    artifacts: list[Artifact] = field(default_factory=list)
    """By time of making."""
    missing: list[str] = field(default_factory=list)

    def of(self, *stages: str) -> list[Artifact]:
        """The artifacts that these stages made."""
        return [a for a in self.artifacts if a.stage in stages]

    def kind(self, kind: str) -> list[Artifact]:
        """The artifacts of one kind."""
        return [a for a in self.artifacts if a.ref.kind == kind]

    def find(self, ref: ArtifactRef) -> Artifact | None:
        """The run's artifact with this content."""
        return next((a for a in self.artifacts if a.ref.digest == ref.digest), None)

    def open(self, ref: ArtifactRef) -> Path | None:
        """Its folder; None where it is gone or altered, which is noted."""
        try:
            return self.store.open(ref)
        except ArtifactError as error:
            if str(error) not in self.missing:
                self.missing.append(str(error))
            return None

    def tokenizer_of(self, ref: ArtifactRef) -> Path | None:
        """The folder of a model for its tokenizer, if that is there: weights may be gone, no page shows them."""
        try:
            return self.store.open(ref)
        except ArtifactError:
            pass
        folder, found = Path(self.store.here(ref).uri), self.find(ref)
        names = {e.path for e in self.store.manifest(ref).files} & set(TOKENIZER_FILES) if found else {""}
        return folder if all((folder / name).is_file() for name in names) else None


def open_source(folder: Path, home: Home) -> RunSource:
    """The run in `folder`. Raises UsageError for a folder of the step-by-step commands, DataError for a broken one."""
    if (folder / "problems").is_dir():
        raise UsageError(
            f"{folder} was made by the step-by-step commands; `reasoner report` is for runs (reasoner runs lists them)"
        )
    try:
        config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("not a mapping")
    except (OSError, ValueError) as error:
        raise DataError(f"{folder / CONFIG} is no configuration of a run: {error}") from None
    home = Home(folder.parent.parent) if folder.parent.name == "runs" else home
    store = Store(home.artifacts)
    source = RunSource(folder.name, folder, method_of(config), config, False, store)
    report = _report(folder)
    source.finished = report is not None
    lineage = Lineage(store, config | {"derived": dict(enumerate(derived_sections(source.method, config)))})
    refs = lineage.ancestors(report) if report else [ref for ref in store.list() if lineage.agrees(ref)]
    for ref in refs:
        try:
            manifest = store.manifest(ref)
        except ArtifactError:
            source.missing.append(f"{ref.kind} {ref.digest[:12]} is not in the store any more")
            continue
        stage = str(manifest.metadata.get("stage", ref.kind))
        label = lineage.label(ref)
        rows = sum(entry.size for entry in manifest.files if entry.path.endswith(".jsonl"))
        source.artifacts.append(
            Artifact(ref, stage, label, manifest.created, manifest.size, rows, manifest.metadata)
        )
    source.artifacts.sort(key=lambda a: (a.created, a.label))
    return source


def method_of(config: dict[str, Any]) -> Method:
    """Which of the three methods a configuration is of."""
    if "grpo" in config and "worker" in config:
        return "planner"
    return "multiturn" if "env_type" in config or "policy_lm" in config else "smart"


def derived_sections(method: Method, config: dict[str, Any]) -> list[dict[str, Any]]:
    """Sections that stages are called with and that no configuration file holds as such."""
    try:
        if method == "smart":
            smart = SmartConfig.model_validate(config)
            asked = [*(smart.sampling(t) for t in (1, 2)), *(smart.answering(t) for t in (1, 2))]
            return [
                s.model_dump(mode="json")
                for s in (
                    *asked,
                    smart.answering_each(),
                    smart.train_for(1),
                    smart.train_for(2),
                    *_held(smart.grpo, smart.compute),
                )
            ]
        if method == "multiturn":
            multi = MultiTurnConfig.model_validate(config)
            places = [multi.model_copy(update={"compute": c}) for c in _places(multi.compute)]
            return [c.model_dump(mode="json") for c in (*(m.learned() for m in places), multi.measured())]
        if method == "planner":
            planner = PlannerConfig.model_validate(config)
            return [s.model_dump(mode="json") for s in _held(planner.grpo, planner.compute)]
    except ValidationError:
        pass  # an older version's configuration: what its stages were called with is in it or not at all
    return []


def _held(grpo: GrpoConfig, compute: ComputeConfig) -> list[GrpoConfig]:
    """Who holds the card and who samples is in no key: a kept artifact may have been made with any of them."""
    told = grpo.on(compute)
    return [
        told.model_copy(update={"share_card": held, "server": server})
        for held in (None, False, True)
        for server in (grpo.server, told.server)
    ]


def _places(compute: ComputeConfig) -> list[ComputeConfig]:
    """Where a multi-turn training of the run may have been: as it is configured now, or as by default."""
    plain = ComputeConfig()
    return [
        ComputeConfig(one_card=one, processes=processes, server=server)
        for one in (False, True)
        for processes in {plain.processes, compute.processes}
        for server in (plain.server, compute.server)
    ]


def refs_in(value: Any) -> Iterator[ArtifactRef]:
    """All references inside encoded arguments."""
    if isinstance(value, dict) and set(value) == {"kind", "digest", "uri"}:
        yield ArtifactRef.from_row(value)
        return
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from refs_in(item)


def ref_of(value: Any) -> ArtifactRef | None:
    """One encoded argument as a reference; None where the stage was given none."""
    return next(refs_in(value), None)


def _report(folder: Path) -> ArtifactRef | None:
    path = folder / RESULT
    if not path.is_file():
        return None
    try:
        return ArtifactRef.from_row(json.loads(path.read_text(encoding="utf-8"))["report"])
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is not the result of a run: {error}; run the same command again") from None
