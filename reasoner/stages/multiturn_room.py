"""Who speaks in a multi-turn evaluation, and where their words are kept.

Every completion goes through the ledger, under the weights that made it (the base, base and adapter, or another model),
so an evaluation that is begun again makes what is owed; with nothing owed no engine starts. Verdicts are found anew.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.engines.protocol import Engine
from reasoner.engines.start import open_engine
from reasoner.environments import open_environment
from reasoner.errors import DataError
from reasoner.ids import content_hash, file_hash
from reasoner.ledger.ledger import Ledger
from reasoner.ledger.owed import LazyEngine, complete
from reasoner.methods.multiturn.episode import FEEDBACK, SOLVER, Episode
from reasoner.methods.multiturn.rollout import Advice, Rollouts
from reasoner.methods.multiturn.speaker import Heard, Said, Speaker
from reasoner.prompts.turns import load_turns
from reasoner.records import GenerationRequest, Problem, Sampling
from reasoner.shards.mirror import open_ledger
from reasoner.stages.generation import served_fingerprint
from reasoner.training.adapter import CONFIG, WEIGHTS
from reasoner.training.multiturn.sampling import advice_of, engine_of, plain_speaker
from reasoner.workbench import ModelFolder, Workbench

FOLDERS = {SOLVER: "solver", FEEDBACK: "guidance"}
"""Adapter and its folder in what a training leaves."""


@dataclass(frozen=True, slots=True)
class Cast:
    """Who plays: the base, another model that writes corrections, and what was trained (None: the untrained base)."""

    model: ModelFolder
    correction: ModelFolder | None = None
    trained: Path | None = None

    def adapters(self, frozen_writer: bool) -> dict[str, Path]:
        """The trained adapters that play, by their names in the engine."""
        if self.trained is None:
            return {}
        names = [SOLVER] if frozen_writer else [SOLVER, FEEDBACK]
        found = {name: self.trained / FOLDERS[name] for name in names}
        return {name: folder for name, folder in found.items() if folder.is_dir()}


@dataclass
class Counts:
    """Completions that were asked for, those of them that were not in the ledger, and the tokens of all."""

    asked: int = 0
    owed: int = 0
    tokens: int = 0


@dataclass(frozen=True)
class LedgerVoice:
    """Answers from a model's ledger, or from its engine, which is started only for what is owed."""

    ledger: Ledger
    fingerprints: dict[str, str]
    """By adapter; the empty name is the bare base."""
    engine: Callable[[], Engine]
    counts: Counts

    def say(self, requests: Sequence[GenerationRequest], heard: Heard | None = None) -> list[Said]:
        """See `methods.multiturn.speaker.Voice`. Raises EngineError as `ledger.owed.complete`."""
        made = complete(
            requests, ledger=self.ledger, fingerprint=self.fingerprints, engine=self.engine,
            on_progress=lambda facts: heard(facts["done"], facts["total"]) if heard else None,
        )  # fmt: skip
        self.counts.asked += len(requests)
        self.counts.owed += made.made
        self.counts.tokens += sum(c.completion_tokens for c in made.completions)
        return [Said(c.text, c.finish, c.completion_tokens) for c in made.completions]


@dataclass
class Served:
    """The run's engine with the cast's adapters, which it gets when it is first asked and after it was replaced."""

    bench: Workbench
    cast: Cast
    config: MultiTurnConfig
    adapters: dict[str, Path]
    _ready: Engine | None = field(default=None, repr=False)

    def __call__(self) -> Engine:
        """Raises what engines raise at their start."""
        engine = self.bench.engines.acquire(engine_of(self.config, self.cast.model.path, adapters=True))
        if engine is not self._ready:
            for name, folder in self.adapters.items():
                engine.load_adapter(name, folder)
            self._ready = engine
        return engine


@dataclass(frozen=True)
class Room:
    """The rollouts of an evaluation: `greedy`, and `sampled` at the training's temperature."""

    greedy: Rollouts
    sampled: Rollouts
    counts: Counts

    def again(
        self, problems: Sequence[Problem], main: Sequence[Episode], advice: Advice, seed: int
    ) -> list[Episode]:
        """Other second turns of the first turns of `main`. Raises DataError for a problem that is not known."""
        by_id = {p.id: p for p in problems}
        missing = [e.problem_id for e in main if e.problem_id not in by_id]
        if missing:
            raise DataError(f"the evaluation holds problem {missing[0]}, which is not in the test")
        first = self.greedy.attempted([by_id[e.problem_id] for e in main], [e.attempt for e in main])
        return self.greedy.second_turns(first, seed, advice)


@contextmanager
def open_room(
    bench: Workbench, cast: Cast, config: MultiTurnConfig, *, frozen_writer: bool = False
) -> Iterator[Room]:
    """A room; ledgers, environment and an engine of the correction's model end with the block."""
    verify, counts = config.verify, Counts()
    with ExitStack() as stack:
        adapters = cast.adapters(frozen_writer)
        base = served_fingerprint(cast.model, config.engine)
        fingerprints = {"": base} | {
            name: trained_fingerprint(base, folder) for name, folder in adapters.items()
        }
        ledger = stack.enter_context(open_ledger(bench.home, base[:32]))
        voice = LedgerVoice(ledger, fingerprints, Served(bench, cast, config, adapters), counts)

        def speaker(name: str, max_tokens: int) -> Speaker:
            return plain_speaker(voice, cast.model.path, name if name in adapters else "", max_tokens)

        solver = speaker(SOLVER, config.evaluation.max_tokens or config.max_tokens)
        writer = None
        if advice_of(config) == "model":
            writer = speaker(FEEDBACK, config.guidance_max_tokens)
            if cast.correction is not None:
                other = _other(stack, bench, cast.correction, config, counts)
                writer = plain_speaker(other, cast.correction.path, "", config.guidance_max_tokens)
        environment = stack.enter_context(
            open_environment(
                config.env_type, show_tests=config.show_tests, workers=verify.workers, timeout=verify.timeout
            )
        )

        def rollouts(temperature: float) -> Rollouts:
            def at(given: Speaker) -> Speaker:
                return replace(given, sampling=Sampling(temperature, max_tokens=given.sampling.max_tokens))

            return stack.enter_context(
                Rollouts(
                    environment, load_turns(config.prompts), at(solver), at(writer) if writer else None,
                    show_error=config.show_error,
                    progress=lambda kind, done, total: bench.progress(done, total, turn=kind),
                )
            )  # fmt: skip

        yield Room(rollouts(0.0), rollouts(config.temperature), counts)


def _other(
    stack: ExitStack, bench: Workbench, model: ModelFolder, config: MultiTurnConfig, counts: Counts
) -> LedgerVoice:
    """The model that writes corrections, with a ledger and an engine of its own."""
    fingerprint = served_fingerprint(model, config.engine)
    settings, log = engine_of(config, model.path, adapters=False), bench.logs / "correction-engine.log"
    engine = stack.enter_context(LazyEngine(lambda: open_engine(settings, log=log)))
    ledger = stack.enter_context(open_ledger(bench.home, fingerprint[:32]))
    return LedgerVoice(ledger, {"": fingerprint}, engine, counts)


def trained_fingerprint(base: str, folder: Path) -> str:
    """The fingerprint of a base under an adapter: equal weights answer alike, whatever run they came from."""
    files = [folder / name for name in (CONFIG, WEIGHTS)]
    return content_hash([base, folder.name, *(file_hash(path) for path in files if path.is_file())])
