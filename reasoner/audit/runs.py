"""Finds a run by what people call it, and the attempts that belong to it.

A finished run's attempts are those that its report was made from, step by step along the manifests. An unfinished
run's are those in the store whose whole making agrees with the run's configuration. A plain folder of the step-by-step
commands holds its attempts itself.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reasoner.config.smart import SmartVerifyConfig
from reasoner.errors import ArtifactError, DataError, UsageError
from reasoner.home import Home
from reasoner.ids import canonical_json
from reasoner.records import ArtifactRef
from reasoner.store import Store

ATTEMPTS, COMPLETIONS = "attempts", "completions"
SHOWN = 5
"""Runs named in the error for an unknown one."""


@dataclass(frozen=True, slots=True)
class Source:
    """The attempts of one stage and the completions that they judge, row by row."""

    label: str
    attempts: Path
    completions: Path
    by_form: bool = False
    """Whether its policy's answers were judged by their form (`verify.by_form`)."""


@dataclass
class Run:
    """How a run's attempts are judged, where they are, and artifacts that are no longer there."""

    name: str
    verify: SmartVerifyConfig
    sources: list[Source] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def find_run(name: str, home: Home) -> Path:
    """The folder of the run called `name`: a folder, the whole name, a run id, or a beginning of either.

    UsageError for none and for several.
    """
    given = Path(name).expanduser()
    if (given / "config.json").is_file():
        return given.resolve()
    folders = [folder for folder in home.runs.glob("*/") if (folder / "config.json").is_file()]
    folders.sort(key=lambda folder: (folder / "config.json").stat().st_mtime, reverse=True)
    found = [f for f in folders if name and (f.name.startswith(name) or f.name[-36:].startswith(name))]
    exact = [f for f in found if name in (f.name, f.name[-36:])]
    if len(exact or found) == 1:
        return (exact or found)[0]
    what = f"{len(found)} runs are called {name!r}" if found else f"no run {name!r} in {home.runs}"
    there = ", ".join(f.name for f in (found or folders)[:SHOWN]) or "none"
    raise UsageError(f"{what}; give one of them: {there} (all of them: reasoner runs)")


def open_run(folder: Path, home: Home) -> Run:
    """The run in `folder` with its attempts. Raises DataError where nothing was judged yet or a file is broken."""
    try:
        config = json.loads((folder / "config.json").read_text())
        verify = SmartVerifyConfig.model_validate(config.get("verify", {}))
    except (ValueError, AttributeError) as error:
        raise DataError(f"{folder / 'config.json'} is no configuration of a run: {error}") from None
    run = Run(folder.name, verify)
    if (folder / "problems").is_dir():
        run.sources += _in_folder(folder, verify.by_form)
    else:
        home = Home(folder.parent.parent) if folder.parent.name == "runs" else home
        _add_from_store(run, folder, config, Store(home.artifacts))
    if not run.sources:
        gone = f"; not there any more: {', '.join(run.missing)}" if run.missing else ""
        raise DataError(f"run {run.name} has no attempts{gone}; run it first, or give another run")
    return run


def _in_folder(folder: Path, by_form: bool) -> Iterator[Source]:
    for path in sorted(folder.rglob("attempts.jsonl")):
        if path.with_name("completions.jsonl").is_file():
            label, completions = str(path.parent.relative_to(folder)), path.with_name("completions.jsonl")
            yield Source(label, path, completions, by_form)


def _add_from_store(run: Run, folder: Path, config: dict[str, Any], store: Store) -> None:
    lineage, result = Lineage(store, config), folder / "result.json"
    if result.is_file():
        report = ArtifactRef.from_row(json.loads(result.read_text())["report"])
        refs = [ref for ref in lineage.ancestors(report) if ref.kind == ATTEMPTS]
    else:
        refs = [ref for ref in store.list(ATTEMPTS) if lineage.agrees(ref)]
    for ref in refs:
        arguments = lineage.arguments(ref)
        completions = next((r for r in _refs(arguments) if r.kind == COMPLETIONS), None)
        try:
            if completions is None:
                raise ArtifactError(f"attempts {ref.digest[:12]} do not say what they judge")
            judged, given = store.open(ref), store.open(completions)
            label, by_form = lineage.label(completions), bool(arguments.get("config", {}).get("by_form"))
            run.sources.append(Source(label, judged / "attempts.jsonl", given / "completions.jsonl", by_form))
        except ArtifactError as error:
            lineage.missing.setdefault(ref.digest, str(error))
    run.sources.sort(key=lambda source: source.label)
    run.missing += lineage.missing.values()


class Lineage:
    """Walks back from artifact to artifact along the arguments that their manifests keep."""

    def __init__(self, store: Store, config: dict[str, Any]) -> None:
        self._store, self._seed = store, config.get("seed")
        self._metadata: dict[str, dict[str, Any]] = {}
        self._agreed: dict[str, bool] = {}
        later = {**config.get("train", {}), **config.get("train_later", {})}
        self._sections = {canonical_json(section) for top in (config, later) for section in _sections(top)}
        self.missing: dict[str, str] = {}
        """Artifacts that could not be read, by digest."""

    def arguments(self, ref: ArtifactRef) -> dict[str, Any]:
        """What the stage that made `ref` was called with; empty where its manifest is gone."""
        return dict(self._facts(ref).get("arguments", {}))

    def label(self, ref: ArtifactRef) -> str:
        """What the stage that made `ref` was called, such as `few-shot cot pool`."""
        facts = self._facts(ref)
        if facts.get("label"):
            return str(facts["label"])
        arguments = facts.get("arguments", {})
        words = [str(facts.get("stage", ref.kind))]
        words += [str(arguments[name]) for name in ("strategy", "split") if name in arguments]
        return " ".join([*words, *([f"epoch {arguments['epoch']}"] if "epoch" in arguments else [])])

    def ancestors(self, ref: ArtifactRef) -> list[ArtifactRef]:
        """`ref` and everything that it was made from, each content once."""
        found: dict[str, ArtifactRef] = {}
        left = [ref]
        while left:
            one = left.pop()
            if one.digest not in found:
                found[one.digest] = one
                left.extend(_refs(self.arguments(one)))
        return list(found.values())

    def agrees(self, ref: ArtifactRef) -> bool:
        """Whether every section and seed that went into `ref` is one of the configuration's."""
        if ref.digest not in self._agreed:
            self._agreed[ref.digest] = True  # also ends a walk in a circle, which content hashes do not allow
            arguments = self.arguments(ref)
            own = all(self._fits(name, value) for name, value in arguments.items())
            self._agreed[ref.digest] = bool(arguments) and own and all(map(self.agrees, _refs(arguments)))
        return self._agreed[ref.digest]

    def _fits(self, name: str, value: Any) -> bool:
        if name == "seed":
            return bool(value == self._seed)
        return not isinstance(value, dict) or _is_ref(value) or canonical_json(value) in self._sections

    def _facts(self, ref: ArtifactRef) -> dict[str, Any]:
        if ref.digest not in self._metadata:
            try:
                self._metadata[ref.digest] = dict(self._store.manifest(ref).metadata)
            except ArtifactError:
                self._metadata[ref.digest] = {}
                self.missing[ref.digest] = f"{ref.kind} {ref.digest[:12]}"
        return self._metadata[ref.digest]


def _sections(value: Any) -> Iterator[dict[str, Any]]:
    """All mappings inside a configuration, at any depth."""
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _sections(inner)


def _is_ref(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"kind", "digest", "uri"}


def _refs(value: Any) -> list[ArtifactRef]:
    """All references in encoded arguments."""
    if _is_ref(value):
        return [ArtifactRef.from_row(value)]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [ref for item in inner for ref in _refs(item)]
