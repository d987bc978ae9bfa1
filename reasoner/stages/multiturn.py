"""The work of the multi-turn stages: problems, training, greedy evaluation of both turns, controls."""

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reasoner.config.multiturn import EnvType, MultiTurnConfig, ProblemsConfig
from reasoner.engines.protocol import Engine
from reasoner.engines.start import open_engine
from reasoner.environments import Environment, open_environment
from reasoner.errors import DataError
from reasoner.ids import derived_seed, file_hash
from reasoner.methods.multiturn.episode import FEEDBACK, SOLVER, Episode, Turn
from reasoner.methods.multiturn.metrics import rollout_metrics, two_turns
from reasoner.methods.multiturn.rollout import Advice, Rollouts
from reasoner.methods.multiturn.speaker import Speaker
from reasoner.problems.parts import prepare_parts
from reasoner.prompts.turns import load_turns
from reasoner.records import Problem, Sampling
from reasoner.store.rows import read_rows, write_rows
from reasoner.training.checkpoints import write_json
from reasoner.training.multiturn.launch import fetch_encoder, run_multiturn
from reasoner.training.multiturn.sampling import advice_of, engine_of, plain_speaker
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
    out: Path, problems: ProblemsConfig, env_type: EnvType, workers: int | None, timeout: float, seed: int
) -> dict[str, Any]:
    """train.jsonl, validation.jsonl, test.jsonl and left-out.jsonl; golds and reference programs were tried."""
    with open_environment(env_type, workers=workers, timeout=timeout) as environment:
        parts = prepare_parts(problems, env_type, environment, seed)
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


@dataclass(frozen=True, slots=True)
class Cast:
    """Who plays: the base, another model that writes corrections, and what was trained (None: the untrained base)."""

    model: ModelFolder
    correction: ModelFolder | None = None
    trained: Path | None = None


def evaluate(
    out: Path, bench: Workbench, problems: Path, cast: Cast, config: MultiTurnConfig
) -> dict[str, Any]:
    """Greedy, all test problems, both turns without an oracle."""
    with _Room(bench, cast, config) as room:
        rows = room.greedy.episodes(
            read(problems, "test"), 1, derived_seed(config.seed, "test"), advice_of(config)
        )
    return _write(out, rows, config)


def control(
    out: Path, bench: Workbench, problems: Path, cast: Cast, main: Path, name: str, config: MultiTurnConfig
) -> dict[str, Any]:
    """A second turn to compare with. `empty`, `shuffled` and `frozen` refine the first turns of `main`;
    `independent` samples two first attempts at equal compute."""
    tests, seed = read(problems, "test"), derived_seed(config.seed, "test")
    with _Room(bench, cast, config, frozen=name == "frozen") as room:
        if name == "independent":
            rows = room.sampled.single_turns(tests, 2, seed)
            return _write_independent(out, rows)
        rows = room.again(tests, read_episodes(main), _advice(name, config), seed)
    return _write(out, rows, config)


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


class _Room:
    """The rollouts of an evaluation on the run's engine."""

    def __init__(self, bench: Workbench, cast: Cast, config: MultiTurnConfig, frozen: bool = False) -> None:
        self._bench, self._cast, self._config = bench, cast, config
        self._frozen, self._stack = frozen, ExitStack()

    def __enter__(self) -> "_Room":
        config, verify = self._config, self._config.verify
        engine = self._bench.engines.acquire(engine_of(config, self._cast.model.path, adapters=True))
        solver = self._speaker(engine, "solver", SOLVER, config.evaluation.max_tokens or config.max_tokens)
        writer = self._writer(engine) if advice_of(config) == "model" else None
        environment = self._stack.enter_context(
            open_environment(
                config.env_type, show_tests=config.show_tests, workers=verify.workers, timeout=verify.timeout
            )
        )
        self.greedy = self._rollouts(environment, solver, writer, 0.0)
        self.sampled = self._rollouts(environment, solver, writer, config.temperature)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _speaker(self, engine: Engine, folder: str, adapter: str, max_tokens: int) -> Speaker:
        """A trained adapter where there is one, else the base; an evaluation keeps no ids."""
        found = self._cast.trained / folder if self._cast.trained is not None else None
        untrained = found is None or not found.is_dir() or (self._frozen and adapter == FEEDBACK)
        if found is not None and not untrained:
            engine.load_adapter(adapter, found)
        return plain_speaker(engine, self._cast.model.path, "" if untrained else adapter, max_tokens)

    def _writer(self, engine: Engine) -> Speaker:
        config, other = self._config, self._cast.correction
        if other is None:
            return self._speaker(engine, "guidance", FEEDBACK, config.guidance_max_tokens)
        second = open_engine(engine_of(config, other.path, adapters=False),
                             log=self._bench.logs / "correction-engine.log")  # fmt: skip
        self._stack.callback(second.close)
        return plain_speaker(second, other.path, "", config.guidance_max_tokens)

    def _rollouts(
        self, environment: Environment, solver: Speaker, writer: Speaker | None, temperature: float
    ) -> Rollouts:
        def at(given: Speaker) -> Speaker:
            return replace(given, sampling=Sampling(temperature, max_tokens=given.sampling.max_tokens))

        def progress(kind: str, done: int, total: int) -> None:
            self._bench.progress(done, total, turn=kind)

        return self._stack.enter_context(
            Rollouts(
                environment, load_turns(self._config.prompts), at(solver), at(writer) if writer else None,
                show_error=self._config.show_error, progress=progress,
            )
        )  # fmt: skip

    def again(
        self, problems: Sequence[Problem], main: Sequence[Episode], advice: Advice, seed: int
    ) -> list[Episode]:
        """Other second turns of the first turns of `main`."""
        by_id = {p.id: p for p in problems}
        missing = [e.problem_id for e in main if e.problem_id not in by_id]
        if missing:
            raise DataError(f"the evaluation holds problem {missing[0]}, which is not in the test")
        first: list[Turn] = [e.attempt for e in main]
        return self.greedy.second_turns(
            self.greedy.attempted([by_id[e.problem_id] for e in main], first), seed, advice
        )


def _write(out: Path, rows: Sequence[Episode], config: MultiTurnConfig) -> dict[str, Any]:
    write_rows(out / EPISODES, [e.to_row() for e in rows])
    measured = two_turns(rows, config.evaluation.confidence).to_row()
    facts = {"two_turns": measured, "signals": rollout_metrics(rows)}
    write_json(out / EVALUATION, facts)
    return facts


def _write_independent(out: Path, rows: Sequence[Episode]) -> dict[str, Any]:
    """Two samples a problem: the mean accuracy of one, and whether either is right (an oracle, named so)."""
    write_rows(out / EPISODES, [e.to_row() for e in rows])
    pairs: dict[str, list[float]] = {}
    for episode in rows:
        if episode.r1 is not None:
            pairs.setdefault(episode.problem_id, []).append(episode.r1)
    whole = [rewards for rewards in pairs.values() if len(rewards) == 2]
    facts = {
        "n": len(whole),
        "acc_one_sample": sum(map(sum, whole)) / (2 * len(whole)) if whole else None,
        "acc_either_oracle": sum(max(r) for r in whole) / len(whole) if whole else None,
        "signals": rollout_metrics(rows),
    }
    write_json(out / EVALUATION, facts)
    return facts
