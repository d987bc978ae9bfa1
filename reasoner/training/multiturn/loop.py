"""The one loop of all four methods: roll out, learn, hand the adapters over, validate, checkpoint.

The first process samples, judges and writes; episodes reach the others as files. A killed loop goes on from its last
checkpoint: every random choice depends on the seed and the iteration, so on the CPU it ends with the same bytes as
one that was not killed.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.errors import InfrastructureError
from reasoner.ids import derived_seed
from reasoner.methods.multiturn.archer import Replay
from reasoner.methods.multiturn.episode import Episode
from reasoner.methods.multiturn.metrics import rollout_metrics
from reasoner.onpolicy.parts import Part, Parts
from reasoner.onpolicy.sampler import free_cached_memory
from reasoner.records import Problem
from reasoner.store.rows import dump_row, iter_rows, read_rows, write_rows
from reasoner.training.multiturn import checkpointing
from reasoner.training.multiturn.archer_update import ArcherLearner
from reasoner.training.multiturn.checkpointing import State
from reasoner.training.multiturn.learner import Learner
from reasoner.training.multiturn.parts import Learned
from reasoner.training.multiturn.sampling import Sampler
from reasoner.training.multiturn.scoring import Processes

MANY_CUT = 0.1
"""The share of cut first attempts in a validation from which on the log warns."""
METRICS, TIMES, EPISODES, VALIDATIONS = "metrics.jsonl", "times.jsonl", "episodes", "validations"
KEPT_CHECKPOINTS = 2


@dataclass
class Loop:
    """A run in one process. The sampler is there in the first process only; `parts` counts where the time goes."""

    config: MultiTurnConfig
    work: Path
    learned: Learned
    processes: Processes
    train: Sequence[Problem]
    validation: Sequence[Problem]
    sampler: Sampler | None
    report: Callable[..., Any]
    log: Callable[[str], None]
    parts: Parts = field(default_factory=Parts)
    state: State = field(default_factory=State)

    def __post_init__(self) -> None:
        self._problems = {p.id: p for p in self.train}
        self._learner = Learner(self.learned, self.config, self.processes, self.parts)
        self._archer = ArcherLearner(
            self.learned, self.config, self.processes, Replay(self.config.capacity), self._fresh, self._sync,
            self.parts,
        )  # fmt: skip

    @property
    def metric(self) -> str:
        """What the best checkpoint is chosen by: the accuracy of the last trained turn."""
        return "acc_t1" if self.config.method == "archer" else "acc_t2"

    def run(self) -> None:
        """From `state.step` to the end. Raises TrainingError, InfrastructureError and what engines raise."""
        self._forget_later()
        self.parts.take()  # what came before is no iteration's time
        self._sync()
        if self.state.step == 0:
            self._validate()
        while self.state.step < self.config.steps:
            self._iterate(self.state.step)
            self.state.step += 1
            done = self.state.step == self.config.steps
            validated = done or self.state.step % self.config.eval_freq == 0
            if validated:
                self._validate()
            if validated or self.state.step % self.config.save_freq == 0:
                self._checkpoint()

    def _iterate(self, iteration: int) -> None:
        """One rollout and what is learned from it."""
        import torch

        name = f"{iteration + 1:06d}"
        with self.parts.part("rollout"):
            episodes = self._share(EPISODES, name, lambda: self._roll_out(iteration))
        metrics: dict[str, float] = {"step": iteration + 1, **rollout_metrics(episodes)}
        self._check_unscored(episodes)
        scored = [e for e in episodes if e.scored]
        torch.manual_seed(derived_seed(self.config.seed, "update", iteration))  # LoRA's dropout
        if self.config.method == "archer":
            self._archer.replay.add(scored)
            with self.parts.part("learn"):
                metrics |= self._archer.learn(iteration)
        elif scored:
            self._rest()
            with self.parts.part("learn"):
                metrics |= self._learner.learn(iteration, scored, self._problems)
            self._sync()
        skipped = self.learned.skipped()
        if any(skipped.values()):  # what such a step was computed from may be no number either
            metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
        self._tell(metrics | skipped)

    def _roll_out(self, iteration: int) -> list[Episode]:
        assert self.sampler is not None
        chosen = batch_of(
            self.train, self.config.rollout_size // self.config.group_size, self.config.seed, iteration
        )
        return self.sampler.rollout(chosen, derived_seed(self.config.seed, "rollout", iteration))

    def _fresh(self, ids: Sequence[str], name: str, judge: bool) -> list[Episode]:
        def make() -> list[Episode]:
            assert self.sampler is not None
            problems = [self._problems[i] for i in ids]
            return self.sampler.fresh(problems, derived_seed(self.config.seed, "fresh", name), judge)

        made = self._share("fresh", name, make)
        self._rest()
        return made

    def _share(self, folder: str, name: str, make: Callable[[], list[Episode]]) -> list[Episode]:
        """Episodes that the first process makes and every process reads."""
        path = self.work / folder / f"{name}.jsonl"
        self._make_room()
        if self.processes.first:
            episodes = make()
            path.parent.mkdir(parents=True, exist_ok=True)
            write_rows(path, [e.to_row() for e in episodes])
            self.processes.wait()
            if folder == "fresh":
                self.processes.wait()  # every process has read it
                path.unlink()
            return episodes
        self.processes.wait()
        read = [Episode.from_row(row) for row in read_rows(path)]
        if folder == "fresh":
            self.processes.wait()
        return read

    def _sync(self) -> None:
        """Hand the adapters, as they are, to the engine."""
        self._make_room()
        if self.sampler is not None:
            self.sampler.sync(self.learned.policy)

    def _rest(self) -> None:
        """Nothing is sampled before the next update: the engine may let go of the card, and of the others' cards."""
        if self.sampler is not None:
            self.sampler.rest()
        if self.config.compute.shares_card:
            self.processes.wait()

    def _make_room(self) -> None:
        """Where engines share the processes' cards: each process gives back what torch keeps before one may wake."""
        if self.config.compute.shares_card:
            free_cached_memory()
            self.processes.wait()

    def _validate(self) -> None:
        """Greedy episodes on all validation problems; the numbers go into the state."""

        def make() -> list[Episode]:
            assert self.sampler is not None
            return self.sampler.validate(self.validation, derived_seed(self.config.seed, "validation"))

        with self.parts.part("validate"):
            episodes = self._share(VALIDATIONS, f"{self.state.step:06d}", make)
        found = {"step": self.state.step, **rollout_metrics(episodes)}
        self.state.validations.append(found)
        second = f", turn 2 {found['acc_t2']:.3f}, Δ {found['delta']:+.3f}" if "acc_t2" in found else ""
        self._say(
            f"iteration {self.state.step}: validation turn 1 {found['acc_t1']:.3f}{second} (N={len(episodes)})"
        )
        if (cut := found["attempt_cut"]) > MANY_CUT:
            self._say(
                f"warning: {cut:.0%} of the first attempts are cut at max_tokens={self.config.max_tokens}; a cut one "
                "rarely has its answer, and a second turn guesses it: raise max_tokens"
            )
        if self.processes.first:
            keys = ("acc_t1", "acc_t2", "delta", "attempt_cut")
            shown = {f"validation_{k}": v for k, v in found.items() if k in keys}
            self.report(done=self.state.step, total=self.config.steps, step=self.state.step, **shown)

    def _checkpoint(self) -> None:
        if self.processes.first:
            with self.parts.part(Part.CHECKPOINT):
                checkpointing.save(self.work, self.learned, self.state, self.metric, KEPT_CHECKPOINTS)
        self.processes.wait()

    def _check_unscored(self, episodes: Sequence[Episode]) -> None:
        """A run must not go on where the judge fails: silent zeros are a known failure of such pipelines."""
        reasons = Counter(
            t.judged.verdict.reason
            for e in episodes
            for t in e.turns
            if t.judged is not None and t.reward is None
        )
        bad = sum(not e.scored for e in episodes)
        if bad > max(1, self.config.verify.max_unscored * len(episodes)):
            raise InfrastructureError(
                f"iteration {self.state.step + 1}: {bad} of {len(episodes)} episodes are unscored "
                f"({', '.join(f'{reason} {n}' for reason, n in reasons.most_common(3))}), more than "
                f"verify.max_unscored={self.config.verify.max_unscored:g}; mend the cause and run it again"
            )

    def _tell(self, metrics: dict[str, float]) -> None:
        """A line of metrics.jsonl, a report to the parent, and now and then a line of the log."""
        if not self.processes.first:
            return
        # Times stand apart: metrics are a part of the result, and equal inputs give equal bytes.
        taken = self.parts.take_step()
        seconds = {"wall": taken.wall, **taken.parts}
        times = {"step": metrics["step"], **{k: round(v, 4) for k, v in seconds.items()}}
        for name, row in ((METRICS, metrics), (TIMES, times)):
            with (self.work / name).open("ab") as out:
                out.write(dump_row(row) + b"\n")
        self.report(done=metrics["step"], total=self.config.steps, **metrics)
        keys = ("acc_t1", "acc_t2", "attempt_kl", "feedback_kl", "logprob_difference")
        shown = " ".join(f"{k} {metrics[k]:.3f}" for k in keys if k in metrics)
        self._say(f"iteration {metrics['step']:.0f}/{self.config.steps} {shown} {taken.wall:.1f} s")

    def _say(self, line: str) -> None:
        if self.processes.first:
            self.log(line)

    def _forget_later(self) -> None:
        """After a kill: drop what was written behind the checkpoint, and refill the buffer from the rest."""
        if self.processes.first:
            for folder in (EPISODES, VALIDATIONS, "fresh"):
                for path in _made(self.work / folder).glob("*.jsonl"):
                    if folder == "fresh" or int(path.stem) > self.state.step:
                        path.unlink()
            for name in (METRICS, TIMES):
                keep_metrics(self.work / name, self.state.step)
        self.processes.wait()
        if self.config.method == "archer":
            for path in sorted((self.work / EPISODES).glob("*.jsonl")):
                self._archer.replay.add(Episode.from_row(row) for row in iter_rows(path))


def batch_of(problems: Sequence[Problem], count: int, seed: int, iteration: int) -> list[Problem]:
    """The problems of an iteration: a shuffled pass over all of them, then another; every problem once a pass, and
    never twice in a batch while there are enough."""
    found: list[Problem] = []
    at = iteration * count
    while len(found) < count:
        epoch, start = divmod(at, len(problems))
        order = list(range(len(problems)))
        Random(derived_seed(seed, "order", epoch)).shuffle(order)
        taken = order[start : start + count - len(found)]
        found += [problems[i] for i in taken]
        at += len(taken)
    unique = {p.id: p for p in found}
    if len(unique) < count <= len(problems):  # the border of two passes gave one twice: fill up in order
        for problem in problems:
            if len(unique) == count:
                break
            unique.setdefault(problem.id, problem)
    return list(unique.values())


def keep_metrics(path: Path, step: int) -> None:
    """Cut metrics.jsonl after `step`; a torn last line goes, too."""
    rows: list[dict[str, Any]] = []
    if path.is_file():
        for line in path.read_bytes().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                break
            if row["step"] <= step:
                rows.append(row)
    write_rows(path, rows)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder
