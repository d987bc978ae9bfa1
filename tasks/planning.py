"""Walks a flow without running it: which stages are cached, which are stale and why, what the others will take.

The flow's own function is called, so a plan can't differ from the run. Each stage answers with its cached artifact or
with a placeholder in a temporary store, which carries what is expected of it; a key that holds a placeholder is in no
cache, so everything after it is to run. (Where a stage that is made anew comes out as before, the run then finds more
in the cache than was planned.) The questions themselves are loaded where that needs no network.
"""

import json
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from reasoner.config.base import Section
from reasoner.config.smart import ModelConfig
from reasoner.engines.pool import EnginePool
from reasoner.errors import ReasonerError
from reasoner.home import Home
from reasoner.housekeeping.results import kept_result
from reasoner.planning import facts, fit, multiturn, planner, questions, smart
from reasoner.planning.architecture import architecture_of, folder_of
from reasoner.planning.calibration import Calibration, Speed
from reasoner.planning.device import Device, host_memory
from reasoner.planning.estimate import Estimate, Scene, Tokens
from reasoner.planning.plan import CACHED, STALE, TO_RUN, Plan, Step
from reasoner.records import ArtifactRef
from reasoner.store import Store, verify_ref
from tasks.context import RunContext, rehearsing
from tasks.stage import Stage

Estimator = Callable[[Scene, dict[str, Any]], Estimate]
ESTIMATORS: dict[str, Estimator] = {**smart.ESTIMATORS, **planner.ESTIMATORS, **multiturn.ESTIMATORS}
ANY = 1 << 60
"""Main memory of a machine that is not this one."""
UNKNOWN = Estimate(1.0, notes=("no estimate for this stage",))


class Rehearsal(RunContext):
    """The surroundings of a flow that is only walked."""

    def __init__(self, home: Home, scratch: Path, scene: Callable[["Rehearsal"], Scene]) -> None:
        super().__init__(home, Store(home.artifacts), EnginePool(scratch / "logs"), scratch)
        self.placeholders = Store(scratch / "store")
        self.steps: list[Step] = []
        self._seen: dict[str, ArtifactRef] = {}
        self._made = _made(self.store)
        self.scene = scene(self)

    def save_config(self, config: Section) -> None:
        """A plan leaves nothing."""

    def finish(self, report: ArtifactRef, model: ArtifactRef | None = None) -> None:
        """A plan leaves nothing."""

    def rehearse(self, stage: Stage, arguments: dict[str, Any]) -> ArtifactRef:
        """The stage's artifact, or what stands for it; the stage is noted once."""
        key = stage.key(arguments)
        if key in self._seen:
            return self._seen[key]
        label, ref = stage.label(arguments), _cached(self.home, key)
        if ref is not None:
            self.steps.append(Step(stage.name, label, key, CACHED))
        else:
            state, reason = self._why(stage, arguments, label)
            estimate = ESTIMATORS.get(stage.name, lambda *_: UNKNOWN)(self.scene, arguments)
            self.steps.append(Step(stage.name, label, key, state, reason, estimate))
            ref = self._placeholder(stage, arguments, key, label, estimate)
        self._seen[key] = ref
        return ref

    def _placeholder(
        self, stage: Stage, arguments: dict[str, Any], key: str, label: str, estimate: Estimate
    ) -> ArtifactRef:
        """An artifact that stands for the stage's, under a digest that no real one has."""
        expected = dict(estimate.expected)
        if stage.name == "problems" and questions.is_local(arguments["data"]):
            with self.placeholders.writer(stage.kind, metadata={"label": label}) as draft:
                stage.function(draft, **arguments)  # seconds, and the numbers are then exact
            return draft.ref
        if stage.name == "problems":
            expected = questions.of_sets(arguments["data"])
        elif stage.name == "multiturn-problems":
            expected = questions.of_parts(arguments["problems"])
        metadata = {"label": label, "stage": stage.name, facts.EXPECTED: expected}
        with self.placeholders.writer(stage.kind, metadata=metadata) as draft:
            (draft.path / "placeholder.json").write_text(json.dumps({"key": key}))
            if stage.kind == "convergence":  # nobody knows when it ends: planned is the longest run
                epoch = len(arguments["answers"])
                row = {"accuracy": [], "stop": epoch >= arguments["max_epochs"], "best": epoch,
                       "reason": "planned to the last epoch"}  # fmt: skip
                (draft.path / "convergence.json").write_text(json.dumps(row))
        return draft.ref

    def _why(self, stage: Stage, arguments: dict[str, Any], label: str) -> tuple[str, str]:
        """(state, reason) of a stage that is not in the cache: what differs from the likest artifact of its label."""
        encoded = stage.encode(arguments)
        found = []
        for metadata in self._made.get(stage.name, []):
            if metadata.get("label", label) != label or "arguments" not in metadata:
                continue
            if metadata.get("version") != stage.version:
                found.append([f"code version {metadata.get('version')} → {stage.version}"])
            else:
                found.append(_differences(metadata["arguments"], encoded))
        if not found:
            return TO_RUN, "not made yet"
        changed = min(found, key=len)
        if not changed:
            return STALE, "its artifact is gone or altered, or a file or prompt that it reads has changed"
        return STALE, f"inputs changed: {', '.join(changed[:4])}{' …' if len(changed) > 4 else ''}"


def _made(store: Store) -> dict[str, list[Mapping[str, Any]]]:
    """The manifests of what was made before, by stage."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for ref in store.list():
        with suppress(ReasonerError):
            metadata = store.manifest(ref).metadata
            found.setdefault(str(metadata.get("stage", "")), []).append(metadata)
    return found


def _cached(home: Home, key: str) -> ArtifactRef | None:
    """The reference in a cached result whose artifact is whole; None for a miss."""
    ref = kept_result(home, key)
    try:
        if ref is not None:
            verify_ref(ref)
    except ReasonerError:
        return None
    return ref


def _differences(old: Any, new: Any, name: str = "") -> list[str]:
    """Dotted names of arguments that differ; references count by kind and digest."""
    if isinstance(old, dict) and isinstance(new, dict):
        if {"kind", "digest", "uri"} <= old.keys() and {"kind", "digest", "uri"} <= new.keys():
            return [] if old["digest"] == new["digest"] else [name]
        names = sorted(old.keys() | new.keys())
        return [d for n in names for d in _differences(old.get(n), new.get(n), f"{name}.{n}".lstrip("."))]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        found = [d for a, b in zip(old, new, strict=True) for d in _differences(a, b, name)]
        return list(dict.fromkeys(found))
    return [] if old == new else [name]


def make_plan(
    name: str, flow: Callable[..., Any], overrides: Sequence[str], model: ModelConfig, home: Home, device: Device,
    calibration: Calibration | None, elsewhere: bool = False,
) -> Plan:  # fmt: skip
    """Walk `flow` for the configuration `name`. Raises what the configuration's own checks raise.

    `elsewhere`: the run is planned for another machine, of whose main memory and disk nothing is known.
    """
    speed = Speed.of(device, calibration)
    folder = folder_of(model, home.path)
    tokens, arch = Tokens(folder), architecture_of(model, home.path)

    def scene(walk: Rehearsal) -> Scene:
        return Scene(
            speed, arch, tokens, lambda ref: facts.facts_of(ref, tokens.count), len(os.sched_getaffinity(0)),
            ANY if elsewhere else host_memory()[1],
        )  # fmt: skip

    with tempfile.TemporaryDirectory(prefix="reasoner-plan-") as scratch:
        walk = Rehearsal(home, Path(scratch), scene)
        with rehearsing(walk):
            flow(name, list(overrides))
    steps = tuple(walk.steps)
    owed = [step for step in steps if step.state != CACHED]
    basis = speed.words
    overhead = speed.seconds("flow") + speed.seconds("stage") * len(owed)
    refusals = _refusals(owed, walk.scene, None if elsewhere else home)
    return Plan(name, speed.device.name, basis, overhead, steps, refusals)


def _refusals(owed: Sequence[Step], scene: Scene, home: Home | None) -> tuple[str, ...]:
    """What does not fit, each thing once."""
    lines: list[str] = []
    for step in owed:
        what = step.estimate
        line = fit.memory_refusal(
            step.label, what.device_bytes, what.host_bytes, scene.speed.device, scene.host, what.remedy
        )
        if line and not any(line.partition(" needs ")[2] == seen.partition(" needs ")[2] for seen in lines):
            lines.append(line)
    needed = sum(step.estimate.disk_bytes for step in owed)
    disk = fit.disk_refusal(needed, home.path) if home is not None else ""
    return (*lines, *([disk] if disk else []))
