"""The work of the multi-turn stages: problems, training, greedy evaluation of both turns, controls."""

import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.config.problems import EnvType, ProblemsConfig
from reasoner.environments import open_environment
from reasoner.errors import DataError
from reasoner.ids import derived_seed, file_hash
from reasoner.methods.multiturn.episode import Episode
from reasoner.methods.multiturn.metrics import attempts_by_problem, rollout_metrics, two_turns
from reasoner.methods.multiturn.rollout import Advice
from reasoner.problems.parts import prepare_parts
from reasoner.records import Problem
from reasoner.stages.multiturn_room import Cast, open_room
from reasoner.store.rows import read_rows, write_rows
from reasoner.training.checkpoints import write_json
from reasoner.training.multiturn.launch import fetch_encoder, run_multiturn
from reasoner.training.multiturn.sampling import advice_of
from reasoner.training.multiturn.spec import MultiTurnSpec
from reasoner.workbench import ModelFolder, Workbench

PARTS = ("train", "validation", "test")
EPISODES, EVALUATION = "episodes.jsonl", "evaluation.json"
TIMES = "times.jsonl"
"""Seconds by part of each iteration, kept with the run's logs: equal trainings take different times."""


def fingerprint(problems: ProblemsConfig) -> dict[str, Any]:
    """What the configuration does not say of the problems: the content of files."""
    found = {}
    for name in ("train", "test"):
        source = getattr(problems, name)
        if source is not None and source.kind == "file":
            path = Path(source.path).expanduser()
            if not path.is_file():
                raise DataError(
                    f"data set {source.name}: there is no file {source.path}; put it there, name it with "
                    f"problems.{name}.path=FILE, or read the Hub with problems=math-hub or problems=mbpp-hub"
                )
            found[name] = file_hash(path)
    return found


def prepare(
    out: Path, problems: ProblemsConfig, env_type: EnvType, workers: int | None, timeout: float
) -> dict[str, Any]:
    """train.jsonl, validation.jsonl, test.jsonl and left-out.jsonl; golds and reference programs were tried."""
    with open_environment(env_type, workers=workers, timeout=timeout) as environment:
        parts = prepare_parts(problems, env_type, environment)
    for name in PARTS:
        write_rows(out / f"{name}.jsonl", [p.to_row() for p in getattr(parts, name)])
    left = [{"set": i.source, "row": i.row, "reason": i.reason, "excerpt": i.excerpt} for i in parts.left_out]
    write_rows(out / "left-out.jsonl", left)
    return parts.facts


def read(folder: Path, part: str) -> list[Problem]:
    """The problems of a part that `prepare` wrote."""
    return [Problem.from_row(row) for row in read_rows(folder / f"{part}.jsonl")]


def train(
    out: Path, bench: Workbench, problems: Path, model: ModelFolder, correction: ModelFolder | None,
    config: MultiTurnConfig,
) -> dict[str, Any]:  # fmt: skip
    """Train into `out`; goes on from the last complete checkpoint in `bench.work`. The child has its own engine."""
    if config.uses_value and config.value_backbone != "shared":
        fetch_encoder(config.value_backbone)
    if config.method == "archer" and config.critic_lm != "base":
        fetch_encoder(config.critic_lm)
    spec = MultiTurnSpec(
        base=model.path, base_name=model.name, base_fingerprint=model.fingerprint, problems=problems, output=out,
        work=bench.work / "multiturn", config=config, correction_base=correction.path if correction else None,
    )  # fmt: skip
    with bench.engines.without_engine():
        done = run_multiturn(spec, bench.logs / f"train-{bench.work.name}.log", bench.child_progress)
    if (spec.work / TIMES).is_file():
        shutil.copyfile(spec.work / TIMES, bench.logs / f"times-{bench.work.name}.jsonl")
    training = {k: v for k, v in done["training"].items() if k not in ("config", "schema")}
    return {"training": training, "metrics": done["metrics"]}


def evaluate(
    out: Path, bench: Workbench, problems: Path, cast: Cast, config: MultiTurnConfig
) -> dict[str, Any]:
    """Greedy, all test problems, both turns without an oracle."""
    with open_room(bench, cast, config) as room:
        rows = room.greedy.episodes(
            read(problems, "test"), 1, derived_seed(config.seed, "test"), advice_of(config)
        )
    return _write(out, rows, config) | {"generated": asdict(room.counts)}


def control(
    out: Path, bench: Workbench, problems: Path, cast: Cast, main: Path, name: str, config: MultiTurnConfig
) -> dict[str, Any]:
    """A second turn to compare with. `empty`, `shuffled` and `frozen` refine the first turns of `main`;
    `independent` samples two first attempts at equal compute."""
    tests, seed = read(problems, "test"), derived_seed(config.seed, "test")
    with open_room(bench, cast, config, frozen_writer=name == "frozen") as room:
        if name == "independent":
            facts = _write_independent(out, room.sampled.single_turns(tests, 2, seed))
        else:
            rows = room.again(tests, read_episodes(main), _advice(name, config), seed)
            facts = _write(out, rows, config)
    return facts | {"generated": asdict(room.counts)}


def read_episodes(folder: Path) -> list[Episode]:
    """Episodes that an evaluation left."""
    return [Episode.from_row(row) for row in read_rows(folder / EPISODES)]


def controls_of(config: MultiTurnConfig) -> list[str]:
    """The controls that mean something for a method: without a writer, no feedback can be shuffled or frozen."""
    if config.method == "archer":
        return [name for name in config.evaluation.controls if name == "independent"]
    if advice_of(config) == "model":
        keep = set(config.evaluation.controls) - (set() if config.guided else {"frozen"})
    else:
        keep = set(config.evaluation.controls) & {"empty", "independent"}
    return [name for name in config.evaluation.controls if name in keep]


def _advice(name: str, config: MultiTurnConfig) -> Advice:
    return {"empty": "empty", "shuffled": "shuffled"}.get(name, advice_of(config))  # type: ignore[return-value]


def _write(out: Path, rows: Sequence[Episode], config: MultiTurnConfig) -> dict[str, Any]:
    write_rows(out / EPISODES, [e.to_row() for e in rows])
    measured = two_turns(rows, config.evaluation.confidence).to_row()
    facts = {"two_turns": measured, "signals": rollout_metrics(rows)}
    write_json(out / EVALUATION, facts)
    return facts


def _write_independent(out: Path, rows: Sequence[Episode]) -> dict[str, Any]:
    """Two samples a problem: the mean accuracy of one, and whether either is right (an oracle, named so)."""
    write_rows(out / EPISODES, [e.to_row() for e in rows])
    whole = [rewards for rewards in attempts_by_problem(rows).values() if len(rewards) == 2]
    facts = {
        "n": len(whole),
        "acc_one_sample": sum(map(sum, whole)) / (2 * len(whole)) if whole else None,
        "acc_either_oracle": sum(max(r) for r in whole) / len(whole) if whole else None,
        "signals": rollout_metrics(rows),
    }
    write_json(out / EVALUATION, facts)
    return facts
