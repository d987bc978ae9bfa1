"""The seconds of stages that ran on cards, from what they really held: docs/plan.md says which runs these are.

Only the speeds are tried here, with the counts that the runs had. Wrong if a stage that the constants were chosen on is
missed by more than a third, a stage of another run by more than two fifths, or a whole run by more than a sixth.
"""

from dataclasses import dataclass
from typing import Any

import pytest

from reasoner.config.smart import EngineConfig
from reasoner.config.training import TrainConfig
from reasoner.planning import device
from reasoner.planning.architecture import KNOWN
from reasoner.planning.calibration import Calibration, Speed
from reasoner.planning.estimate import Scene, Tokens
from reasoner.records import ArtifactRef

RENDERED = 0.0024
"""Seconds that a policy's prompt took in all of these runs: its template was compiled anew each time."""
FULL: dict[str, Any] = {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL"}, "max_num_seqs": 512}
DECODING: dict[str, Any] = {"compilation_config": {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}}
MODELS = {
    name: ArtifactRef("model", digit * 64, "")
    for name, digit in {"base": "1", "first": "2", "second": "3"}.items()
}


def scene(name: str = "h200") -> Scene:
    card = device.find(name)
    slow = Calibration(card, "2026-11-29T00:00", {}, seconds={"prompt": RENDERED})
    return Scene(Speed.of(card, slow), KNOWN["qwen2.5-coder-1.5b"], Tokens(None), lambda ref: {}, 16, 1 << 40)


@dataclass(frozen=True)
class Answers:
    """A stage of completions as it was."""

    model: str
    prompts: int
    samples: int
    new: int
    """Tokens written."""
    prompt: int
    """Tokens of one prompt."""
    seconds: float
    shared: int = 0
    """Of these, what all prompts have in common."""

    def predicted(self, where: Scene, options: dict[str, Any] = FULL) -> float:
        rows = self.prompts * self.samples
        made = where.generation(
            MODELS[self.model], EngineConfig(kind="vllm", options=options), sequences=rows, groups=self.prompts,
            shared=self.shared, own=self.prompt - self.shared, new=self.new / rows,
        ).seconds  # fmt: skip
        # A chat of worked examples was no template of this project's.
        return made - (RENDERED * self.prompts if self.shared else 0.0)


@dataclass(frozen=True)
class Training:
    """A training as it was, with records of 265 tokens."""

    records: int
    validation: int
    batch: int
    seconds: float

    def predicted(self, where: Scene) -> float:
        config = TrainConfig(batch_size=self.batch, grad_accum=1)
        return where.training(
            config, records=self.records, validation=self.validation, prompt=130, completion=135
        ).seconds  # fmt: skip


@dataclass(frozen=True)
class Merge:
    """A merge as it was."""

    seconds: float

    def predicted(self, where: Scene) -> float:
        return where.merging().seconds


Stage = Answers | Training | Merge

CHOSEN_ON: list[Stage] = [  # smart-epoch2 on an H200, 2026-11-29
    Answers("base", 2500, 1, 297_799, 1510, 90.5, 1440), Answers("base", 2500, 1, 382_511, 1750, 22.3, 1680),
    Answers("base", 2500, 1, 301_427, 1418, 20.1, 1350), Answers("base", 1319, 1, 161_302, 1511, 11.3, 1440),
    Answers("base", 1319, 1, 204_729, 1750, 13.4, 1680), Answers("base", 1319, 1, 161_492, 1418, 10.4, 1350),
    Training(3000, 430, 32, 84.8), Merge(48.7), Answers("first", 1319, 1, 197_611, 136, 51.7),
    Answers("first", 2500, 6, 2_081_593, 135, 76.5), Answers("first", 800, 6, 774_893, 146, 36.1),
    Training(7363, 642, 32, 130.7), Merge(47.1), Answers("second", 1319, 1, 202_365, 136, 49.2),
    Answers("second", 1319, 1, 179_132, 138, 8.9), Answers("second", 1319, 3, 539_015, 140, 26.3),
]  # fmt: skip
REJECTION: list[Stage] = [  # smart-rft after it
    Answers("base", 2500, 11, 3_464_376, 1510, 238.1, 1440), Training(10063, 848, 32, 200.3), Merge(51.7),
    Answers("first", 1319, 1, 169_175, 136, 57.0), Answers("first", 1319, 1, 171_770, 138, 14.6),
]  # fmt: skip
DAY_BEFORE: list[Stage] = [  # smart-epoch2 on an H200, 2026-11-28: batches of 16, graphs for decoding alone
    Training(3568, 310, 16, 114.0), Merge(42.0), Answers("first", 1319, 1, 198_000, 136, 56.0),
    Answers("first", 1500, 8, 1_675_000, 135, 125.0), Answers("first", 3000, 8, 1_880_000, 146, 153.0),
    Training(6736, 580, 16, 214.0),
]  # fmt: skip


def off(stages: list[Stage], where: Scene) -> tuple[list[float], float]:
    """How far off each stage is that took more than ten seconds, and all of them together, as shares."""
    found = [(stage.predicted(where), stage.seconds) for stage in stages]
    whole = sum(p for p, _ in found) / sum(a for _, a in found) - 1
    return [p / a - 1 for p, a in found if a > 10], whole


def test_the_run_that_the_constants_were_chosen_on() -> None:
    each, whole = off(CHOSEN_ON, scene())
    assert max(map(abs, each)) < 1 / 3 and abs(whole) < 0.06


def test_rejection_sampling_on_the_same_machine() -> None:
    each, whole = off(REJECTION, scene())
    assert max(map(abs, each)) < 0.4 and abs(whole) < 1 / 6


def test_the_run_of_the_day_before_with_other_graphs_and_batches() -> None:
    where = scene()
    where.started(MODELS["base"], EngineConfig(kind="vllm"))
    each, whole = off([s for s in DAY_BEFORE if not isinstance(s, Answers)], where)
    options = {**DECODING, "max_num_seqs": 512}
    answered = [s for s in DAY_BEFORE if isinstance(s, Answers)]
    found = [(s.predicted(where, options), s.seconds) for s in answered]
    assert max(map(abs, [*each, *(p / a - 1 for p, a in found)])) < 0.4
    assert abs(sum(p for p, _ in found) / sum(a for _, a in found) - 1) < 1 / 6 and abs(whole) < 1 / 6


@pytest.mark.parametrize(("options", "rate"), [(FULL, 29_165), (DECODING, 14_101), ({}, 17_404)])
def test_sampling_with_each_kind_of_graphs(options: dict[str, Any], rate: float) -> None:
    """2,048 requests of 125 tokens on an H200, 384 at once (docs/results/LOG.md, 2026-11-29), without the start."""
    where, engine = scene(), EngineConfig(kind="vllm", options={**options, "max_num_seqs": 384})
    where.started(MODELS["base"], engine)
    asked = {"sequences": 2048, "groups": 0, "shared": 0, "own": 135, "new": 125}
    seconds = where.generation(MODELS["base"], engine, **asked).seconds
    assert 2048 * 125 / seconds == pytest.approx(rate, rel=0.2)


def test_graphs_make_no_step_slower() -> None:
    kinds: list[dict[str, Any]] = [
        FULL,
        {**DECODING, "max_num_seqs": 512},
        {"enforce_eager": True, "max_num_seqs": 512},
    ]
    asked = {"sequences": 4000, "shared": 0, "own": 100, "new": 150}
    seconds = []
    for options in kinds:
        where, engine = scene(), EngineConfig(kind="vllm", options=options)
        where.started(MODELS["base"], engine)
        seconds.append(where.generation(MODELS["base"], engine, **asked).seconds)
    assert seconds == sorted(seconds) and seconds[0] < seconds[1] < seconds[2]
