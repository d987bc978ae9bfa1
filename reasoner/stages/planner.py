"""The planner's stages that generate: candidates for the warm start, and the arms of an evaluation.

Every completion goes through the ledger, under the weights that made it (the base, or base and adapter), so a
run that is begun again makes what is owed. What is written is not judged.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reasoner.config.planner import WorkerConfig
from reasoner.config.smart import EngineConfig, SamplingConfig
from reasoner.engines.protocol import Engine
from reasoner.ids import content_hash
from reasoner.methods.planner.episodes import Episode, episode_of, run_row
from reasoner.methods.planner.evaluation import ATOMIC, DECOMPOSED, TRAINED, UNTRAINED
from reasoner.methods.planner.pipeline import PipelineExecutor, Planned
from reasoner.methods.planner.plan import Plan
from reasoner.methods.planner.prompts import FORCED, PlannerPrompts
from reasoner.methods.planner.worker import FrozenWorker, fitting
from reasoner.prompts import ChatRenderer
from reasoner.records import Completion, GenerationRequest, Problem, Sampling
from reasoner.shards.mirror import open_ledger
from reasoner.stages.completions import completed
from reasoner.stages.generation import served_fingerprint
from reasoner.store.rows import read_rows, write_rows
from reasoner.workbench import ModelFolder, Workbench, engine_settings

PLANNER = "planner"
"""The adapter's name in the engine."""
ATOMIC_PLAN = Plan(False, (), "").to_json()


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """An adapter on disk and the digest of its content."""

    path: Path
    digest: str
    rank: int


class Desk:
    """Planner and worker behind one engine (or `compute.engines` of them) and one ledger. A context manager."""

    def __init__(
        self, bench: Workbench, model: ModelFolder, engine: EngineConfig, worker: WorkerConfig, prompts: PlannerPrompts,
        adapter: AdapterFolder | None,
    ) -> None:  # fmt: skip
        self.bench, self.model, self.config, self.adapter = bench, model, engine, adapter
        self.renderer, self.prompts = ChatRenderer(model.path), prompts
        base = served_fingerprint(model, engine)
        self._fingerprints = {"": base}
        if adapter is not None:
            self._fingerprints[PLANNER] = content_hash([base, adapter.digest])
        self._ledger = open_ledger(bench.home, base[:32])
        self.counts = {"asked": 0, "owed": 0, "tokens": 0}
        self.seconds = 0.0
        """Spent on completions, the engine's start left out."""
        self.timed = bench.compute.engines <= 1
        """Whether `seconds` are those of all completions: none was in the ledger, no engine started inside them."""
        self.worker = FrozenWorker(
            self.complete, self.renderer.render, prompts, worker.decoding.sampling(), seed=worker.seed,
            fits=self._fits(worker.decoding.max_tokens),
        )  # fmt: skip
        self.executor = PipelineExecutor(self.worker)

    def complete(self, requests: Sequence[GenerationRequest]) -> list[Completion]:
        """Completions from the ledger, or made now."""
        if not requests:
            return []
        began = time.monotonic()
        made = completed(
            self.bench, requests, ledger=self._ledger, fingerprint=self._fingerprints, engine=self._engine,
            settings=engine_settings(self.model, self.config, True, self._rank), adapters=self._adapters,
        )  # fmt: skip
        self.seconds += time.monotonic() - began
        self.timed = self.timed and not made.found
        self.counts["asked"] += len(requests)
        self.counts["owed"] += made.made
        self.counts["tokens"] += sum(c.completion_tokens for c in made.completions)
        return made.completions

    def plans(
        self, problems: Sequence[Problem], who: str, sampling: Sampling, samples: int, seed: int, *,
        forced: bool = False,
    ) -> list[Completion]:  # fmt: skip
        """`samples` planner outputs of each problem; a forced one is begun for the planner and returned whole."""
        requests: list[GenerationRequest] = []
        for problem in problems:
            text, special = self.renderer.render(self.prompts.plan(problem.question))
            text += FORCED if forced else ""
            requests.extend(
                GenerationRequest(problem.id, text, sampling, seed, index, who, special) for index in range(samples)
            )  # fmt: skip
        return self.complete(requests)

    def carry_out(
        self, problems: Sequence[Problem], outputs: Sequence[str], tokens: Sequence[int]
    ) -> list[dict[str, Any]]:
        """Rows of runs: output i belongs to problem i."""
        items = [Planned(p.id, p.question, o) for p, o in zip(problems, outputs, strict=True)]
        results = self.executor.execute_batch(items)
        return [
            run_row(p.question, p.gold, t, result)
            for p, t, result in zip(problems, tokens, results, strict=True)
        ]

    def close(self) -> None:
        self._ledger.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _adapters(self) -> dict[str, Path]:
        return {PLANNER: self.adapter.path} if self.adapter else {}

    @property
    def _rank(self) -> int:
        return self.adapter.rank if self.adapter else 16

    def _engine(self) -> Engine:
        began = time.monotonic()
        engine = self.bench.engine(self.model, self.config, adapters=self._adapters, max_lora_rank=self._rank)
        self.seconds -= time.monotonic() - began
        return engine

    def _fits(self, max_tokens: int) -> Any:
        """Without a tokenizer (a scripted model) everything fits."""
        length = self.config.options.get("max_model_len")
        if self.config.kind == "scripted" or not length:
            return None
        from reasoner.training.runtime import load_tokenizer

        return fitting(load_tokenizer(self.model.path), int(length), max_tokens)


def candidates(
    out: Path, desk: Desk, splits: Mapping[str, Sequence[Problem]], decoding: SamplingConfig, samples: int, seed: int
) -> dict[str, Any]:  # fmt: skip
    """Plans drawn from the base and carried out: `runs-SPLIT.jsonl`; every distinct output of a question once."""
    for split, problems in splits.items():
        drawn = desk.plans(problems, "", decoding.sampling(), samples, seed)
        owners = [p for p in problems for _ in range(samples)]
        seen: set[tuple[str, str]] = set()
        kept = []
        for problem, made in zip(owners, drawn, strict=True):
            if (problem.id, made.text) not in seen:
                seen.add((problem.id, made.text))
                kept.append((problem, made))
        rows = desk.carry_out(
            [p for p, _ in kept], [c.text for _, c in kept], [c.completion_tokens for _, c in kept]
        )
        write_rows(runs_file(out, split), rows)
    return dict(desk.counts)


def arms(
    out: Path, desk: Desk, problems: Sequence[Problem], names: Sequence[str], decoding: SamplingConfig
) -> dict[str, Any]:
    """One file of runs an arm, greedy plans first for all arms, then the worker for all of them together.

    Returns counts and, where everything was made now, `arm_seconds`: see `shared_seconds`.
    """
    outputs: dict[str, list[tuple[str, int]]] = {}
    planning = dict.fromkeys(names, 0.0)
    sampling = decoding.sampling()
    trained = PLANNER if desk.adapter is not None else ""
    for name in names:
        if name == ATOMIC:
            outputs[name] = [(ATOMIC_PLAN, 0)] * len(problems)
            continue
        forced = name == DECOMPOSED
        who = "" if name == UNTRAINED else trained
        began = desk.seconds
        made = desk.plans(problems, who, sampling, 1, 0, forced=forced)
        planning[name] = desk.seconds - began
        begun = FORCED if forced else ""
        outputs[name] = [(begun + c.text, c.completion_tokens) for c in made]
    everything = [pair for name in names for pair in outputs[name]]
    began = desk.seconds
    rows = desk.carry_out(list(problems) * len(names), [o for o, _ in everything], [t for _, t in everything])
    runs = {name: rows[i * len(problems) : (i + 1) * len(problems)] for i, name in enumerate(names)}
    for name, found in runs.items():
        write_rows(runs_file(out, name), found)
    seconds = shared_seconds(planning, desk.seconds - began, runs)
    return {**desk.counts, **({"arm_seconds": seconds} if desk.timed else {})}


def shared_seconds(
    planning: Mapping[str, float], working: float, runs: Mapping[str, Sequence[dict[str, Any]]]
) -> dict[str, float]:
    """Seconds of each arm: those of its plans, and of the worker's, in which all arms were asked at once, the arm's
    share by tokens."""
    tokens = {
        name: sum(call["tokens"] for row in rows for call in row["calls"]) for name, rows in runs.items()
    }
    every = max(1, sum(tokens.values()))
    return {name: round(planning[name] + working * tokens[name] / every, 3) for name in runs}


def arm_names(trained: bool) -> tuple[str, ...]:
    """The arms that an evaluation runs."""
    return (TRAINED, UNTRAINED, ATOMIC, DECOMPOSED) if trained else (UNTRAINED, ATOMIC, DECOMPOSED)


def runs_file(folder: Path, name: str) -> Path:
    return folder / f"runs-{name}.jsonl"


def run_names(folder: Path) -> list[str]:
    """The arms or splits that a folder has runs of."""
    return sorted(path.stem.removeprefix("runs-") for path in folder.glob("runs-*.jsonl"))


def read_episodes(folder: Path, name: str) -> list[Episode]:
    """The runs of an arm or a split, judged."""
    return [episode_of(row) for row in read_rows(runs_file(folder, name))]
