"""One training of a toy task in this process: the program's own parts, with the engine in this process too."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

from reasoner.engines.start import open_engine
from reasoner.environments import Environment
from reasoner.methods.multiturn.episode import Episode
from reasoner.records import Problem
from reasoner.store.rows import read_rows
from reasoner.training import runtime
from reasoner.training.multiturn import sampling
from reasoner.training.multiturn.loop import Loop
from reasoner.training.multiturn.parts import build
from reasoner.training.multiturn.program import make_processes, settled
from tests.support import signal

WINDOW = 4
Change = Callable[[list[Episode], int], list[Episode]]


@dataclass(frozen=True)
class Learnt:
    """Greedy validations by step, the metrics of each iteration, the episodes of the best validation."""

    turn: str
    """The accuracy that the method trains: `acc_t1` or `acc_t2`."""
    validations: list[dict[str, float]]
    rows: list[dict[str, Any]]
    episodes: list[Episode]
    keys: dict[str, str]
    """The key of each problem."""

    @property
    def before(self) -> dict[str, float]:
        return self.validations[0]

    @property
    def best(self) -> dict[str, float]:
        """The validation by which a run chooses its checkpoint: the earliest of the highest after training began."""
        return max(self.validations[1:], key=lambda row: row[self.turn])

    @property
    def sampled(self) -> float:
        """Mean accuracy of the best `WINDOW` rollouts in a row."""
        values = [row[self.turn] for row in self.rows]
        return max(sum(values[i : i + WINDOW]) / WINDOW for i in range(len(values) - WINDOW + 1))

    @property
    def learnt(self) -> bool:
        """Greedy at least 0.9 after at most 0.65, and at least 0.85 of what is sampled."""
        return self.before[self.turn] <= 0.65 and self.best[self.turn] >= 0.9 and self.sampled >= 0.85

    @property
    def hints_right(self) -> float:
        """Share of the validated problems whose feedback is the hint that stands for the key."""
        right = [e.advice == signal.HINTS[self.keys[e.problem_id]] for e in self.episodes]
        return sum(right) / len(right)


def train(
    room: Path, base: Path, environment: Environment, method: str, change: Change | None = None, **fields: Any
) -> Learnt:
    """The loop to its end. `change` may alter what a rollout says before it is learned from."""
    task, settings = signal.METHODS[method]
    spec = signal.spec(room, base, task, **{"method": method, **settings, **fields})
    config, work = settled(spec.config, "cpu"), spec.work
    work.mkdir(parents=True)
    tokenizer = runtime.load_tokenizer(base)
    processes = make_processes(config, "cpu")
    learned = build(config, base, "tiny", tokenizer, processes, "float32", lambda line: None)
    train, validation = (
        [Problem.from_row(row) for row in read_rows(spec.problems / f"{name}.jsonl")]
        for name in ("train", "validation")
    )

    @contextmanager
    def opened(*args: Any, **options: Any) -> Iterator[Environment]:
        yield environment

    def quiet(*args: Any, **facts: Any) -> None:
        pass

    loop = Loop(config, work, learned, processes, train, validation, None, quiet, quiet)
    with (
        mock.patch.object(sampling, "open_environment", opened),
        mock.patch.object(sampling, "open_engine", partial(open_engine, in_process=True)),
        sampling.open_sampler(config, base, None, work, 256, loop.parts) as sampler,
    ):
        loop.sampler = sampler
        if change is not None:
            rollout = sampler.rollout
            mock.patch.object(sampler, "rollout", lambda p, seed: change(rollout(p, seed), seed)).start()
        loop.run()
    state, metric = loop.state, loop.metric
    shown = work / "validations" / f"{state.best(metric):06d}.jsonl"
    return Learnt(
        metric, state.validations, read_rows(work / "metrics.jsonl"),
        [Episode.from_row(row) for row in read_rows(shown)], {p.id: p.question.split()[0] for p in validation},
    )  # fmt: skip


def exchanged(episodes: list[Episode], seed: int) -> list[Episode]:
    """The same episodes with each other's verdicts: there is nothing to learn from them."""
    order = list(range(len(episodes)))
    Random(seed).shuffle(order)
    found = []
    for episode, i in zip(episodes, order, strict=True):
        other = episodes[i]
        second = episode.refinement
        if second is not None and other.refinement is not None:
            second = replace(second, judged=other.refinement.judged)
        found.append(
            replace(episode, attempt=replace(episode.attempt, judged=other.attempt.judged), refinement=second)
        )
    return found
