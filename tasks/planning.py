"""Says of each stage of a flow that is only followed: cached, stale and why, or to run, and what it will take.

An artifact that is not kept has a stand-in in a temporary store, which carries what is expected of it. Questions and a
base model that lie on this machine stand there as they are, under the digests that the run gives them; a key that
holds any other stand-in is in no cache, so everything after it is to run. (Where a stage that is made anew comes out
as before, the run then finds more in the cache than was planned.)
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from reasoner.config.smart import ModelConfig
from reasoner.errors import ArtifactError, ModelError
from reasoner.home import Home
from reasoner.lineage import why
from reasoner.models import check_folder
from reasoner.planning import facts, fit, multiturn, planner, questions, smart
from reasoner.planning.architecture import architecture_of, folder_of
from reasoner.planning.calibration import Calibration, Speed
from reasoner.planning.device import Device, host_memory
from reasoner.planning.estimate import Estimate, Scene, Tokens
from reasoner.planning.plan import CACHED, STALE, TO_RUN, Plan, Step
from reasoner.records import ArtifactRef
from reasoner.store import Store, verify_ref
from reasoner.store.store import HASHES
from tasks.rehearsal import rehearse
from tasks.stage import Stage

Estimator = Callable[[Scene, dict[str, Any]], Estimate]
ESTIMATORS: dict[str, Estimator] = {**smart.ESTIMATORS, **planner.ESTIMATORS, **multiturn.ESTIMATORS}
ANY = 1 << 60
"""Main memory of a machine that is not this one."""
CORES_ELSEWHERE = 16
"""Cores a card, as machines with cards are rented."""
UNKNOWN = Estimate(1.0, notes=("no estimate for this stage",))


class Expected:
    """Answers for what is not kept: `estimates` by key, and a stand-in that later stages are estimated from."""

    def __init__(self, scene: Scene, home: Home, scratch: Path) -> None:
        self.scene, self.home = scene, home
        self.estimates: dict[str, Estimate] = {}
        folder = scratch / "store"
        folder.mkdir()
        with suppress(OSError):  # what the store has hashed once is not read again
            shutil.copyfile(Path(home.artifacts) / HASHES, folder / HASHES)
        self.store = Store(folder)

    def __call__(self, stage: Stage, arguments: dict[str, Any], asked: why.Asked) -> ArtifactRef:
        call = asked.call
        estimate = ESTIMATORS.get(stage.name, lambda *_: UNKNOWN)(self.scene, arguments)
        self.estimates[call.key] = estimate
        if call.ref is not None and asked.state == why.FORGOTTEN:
            with suppress(ArtifactError):  # it is there, and will come out of the stage again
                verify_ref(call.ref)
                return call.ref
        metadata = {"label": call.label, "stage": stage.name}
        return self._as_it_is(stage, arguments, metadata) or self._stand_in(
            stage,
            arguments,
            call.key,
            {**metadata, facts.EXPECTED: self._expected(stage, arguments, estimate)},
        )

    def _as_it_is(
        self, stage: Stage, arguments: dict[str, Any], metadata: dict[str, Any]
    ) -> ArtifactRef | None:
        """What takes seconds to make and no network: the keys of what is made of it are then the run's own."""
        if stage.name == "problems" and questions.is_local(arguments["data"]):
            with self.store.writer(stage.kind, metadata=metadata) as draft:
                stage.function(draft, **arguments)
            return draft.ref
        if stage.name == "model" and (folder := folder_of(arguments["model"], self.home.path)) is not None:
            with suppress(ModelError):  # the run will say what is wrong with it
                check_folder(folder)
                return self.store.register(stage.kind, folder, metadata)
        return None

    def _expected(self, stage: Stage, arguments: dict[str, Any], estimate: Estimate) -> dict[str, Any]:
        if stage.name == "problems":
            return questions.of_sets(arguments["data"])
        if stage.name == "multiturn-problems":
            return questions.of_parts(arguments["problems"])
        return dict(estimate.expected)

    def _stand_in(
        self, stage: Stage, arguments: dict[str, Any], key: str, metadata: dict[str, Any]
    ) -> ArtifactRef:
        """An artifact under a digest that no real one has."""
        with self.store.writer(stage.kind, metadata=metadata) as draft:
            (draft.path / "placeholder.json").write_text(json.dumps({"key": key}))
            if stage.kind == "convergence":  # nobody knows when it ends: planned is the longest run
                epoch = len(arguments["answers"])
                row = {"accuracy": [], "stop": epoch >= arguments["max_epochs"], "best": epoch,
                       "reason": "planned to the last epoch"}  # fmt: skip
                (draft.path / "convergence.json").write_text(json.dumps(row))
        return draft.ref


def _steps(asked: Sequence[why.Asked], estimates: dict[str, Estimate], home: Home) -> tuple[Step, ...]:
    steps = []
    for answer in why.answers(home, asked, [one.call for one in asked]):
        call, state, reason = answer.asked.call, CACHED, ""
        if answer.asked.state != why.KEPT:
            # Another epoch or split is not this stage made before.
            new = answer.asked.state == why.STALE and (answer.near is None or answer.near.label != call.label)
            state, reason = (TO_RUN, "not made yet") if new else (STALE, why.short(answer))
        steps.append(
            Step(call.stage, call.label, call.key, state, reason, estimates.get(call.key, Estimate()))
        )
    return tuple(steps)


def make_plan(
    name: str, flow: Any, overrides: Sequence[str], model: ModelConfig, home: Home, device: Device,
    calibration: Calibration | None, elsewhere: bool = False,
) -> Plan:  # fmt: skip
    """Walk `flow` for the configuration `name`. Raises what the configuration's own checks raise.

    `elsewhere`: the run is planned for another machine, of whose main memory and disk nothing is known.
    """
    speed = Speed.of(device, calibration)
    folder = folder_of(model, home.path)
    tokens, arch = Tokens(folder), architecture_of(model, home.path)

    scene = Scene(
        speed, arch, tokens, lambda ref: facts.facts_of(ref, tokens.count),
        CORES_ELSEWHERE if elsewhere else len(os.sched_getaffinity(0)), ANY if elsewhere else host_memory()[1],
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="reasoner-plan-") as scratch:
        expected = Expected(scene, home, Path(scratch))
        followed = rehearse(flow, name, list(overrides), home, expected)
        steps = _steps(followed.asked, expected.estimates, home)
    owed = [step for step in steps if step.state != CACHED]
    basis = speed.words
    overhead = speed.seconds("flow") + speed.seconds("stage") * len(owed)
    refusals = _refusals(owed, scene, None if elsewhere else home)
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
