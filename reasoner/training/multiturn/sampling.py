"""The sampling side of the loop, in the first process alone: engine, environment, rollouts, adapter hand-over."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.engines.protocol import Engine, EngineSettings
from reasoner.engines.start import open_engine
from reasoner.environments import open_environment
from reasoner.ids import derived_seed
from reasoner.methods.multiturn.episode import FEEDBACK, SOLVER, Episode
from reasoner.methods.multiturn.rollout import Advice, Rollouts
from reasoner.methods.multiturn.speaker import Speaker
from reasoner.prompts import ChatRenderer
from reasoner.prompts.turns import load_turns
from reasoner.records import Problem, Sampling
from reasoner.training import runtime

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The LoRA ranks that vLLM can be started for."""

Progress = Callable[[str, int, int], None]


def engine_settings(config: MultiTurnConfig, folder: Path, *, adapters: bool) -> EngineSettings:
    """How the run's engine is started; `adapters` for a policy in training or trained."""
    rank = next((r for r in RANKS if r >= config.lora.r), config.lora.r)
    return EngineSettings(
        config.engine.kind, folder, config.engine.dtype, derived_seed("engine", config.seed), adapters, rank,
        config.engine.options,
    )  # fmt: skip


def advice_of(config: MultiTurnConfig) -> Advice:
    """Where the second turn's advice comes from: a model, or SCoRe's fixed text."""
    return "model" if config.use_smart_corrections and config.method != "archer" else "fixed"


class Sampler:
    """Rollouts for training and for validation by one engine, under the adapters that were handed over last."""

    def __init__(self, config: MultiTurnConfig, training: Rollouts, greedy: Rollouts) -> None:
        self.config, self._training, self._greedy = config, training, greedy
        self.advice = advice_of(config)

    def rollout(self, problems: Sequence[Problem], seed: int) -> list[Episode]:
        """`group_size` sampled episodes a problem: of one turn for ArCHer, else of all turns."""
        if self.config.method == "archer":
            return self._training.single_turns(problems, self.config.group_size, seed)
        return self._training.episodes(problems, self.config.group_size, seed, self.advice)

    def fresh(self, problems: Sequence[Problem], seed: int, judge: bool) -> list[Episode]:
        """One sampled attempt a given problem, in order; a problem may come more than once."""
        return self._training.drawn(problems, seed, judge)

    def validate(self, problems: Sequence[Problem], seed: int) -> list[Episode]:
        """One greedy episode a problem, both turns."""
        return self._greedy.episodes(problems, 1, seed, self.advice)

    def check_lengths(self, problems: Sequence[Problem], max_model_len: int) -> None:
        """See `Rollouts.check_lengths`."""
        self._training.check_lengths(problems, max_model_len)


def hand_over(
    engine: Engine, save: Callable[[str, Path], None], adapters: Sequence[str], room: Path, mark: str
) -> None:
    """Give the engine the adapters as they are now. Each hand-over has a folder of its own: an engine that is started
    again reads the last one."""
    folder = room / mark
    for adapter in adapters:
        save(adapter, folder / adapter)
        engine.load_adapter(adapter, folder / adapter)
    for old in room.iterdir():
        if old != folder:
            shutil.rmtree(old)


@contextmanager
def open_sampler(
    config: MultiTurnConfig, base: Path, correction_base: Path | None, logs: Path, progress: Progress | None = None,
) -> Iterator[tuple[Sampler, Engine]]:  # fmt: skip
    """A sampler with its engine; both end with the block. Raises as `open_engine` and `open_environment`."""
    with ExitStack() as stack:
        verify = config.verify
        environment = stack.enter_context(
            open_environment(
                config.env_type, show_tests=config.show_tests, workers=verify.workers, timeout=verify.timeout
            )
        )
        engine = open_engine(engine_settings(config, base, adapters=True), log=logs / "engine.log")
        stack.callback(engine.close)
        solver = speaker(engine, base, SOLVER, config.temperature, config.max_tokens)
        writer = _writer(config, stack, solver, correction_base, logs)
        templates = load_turns(config.prompts)
        made = [
            stack.enter_context(
                Rollouts(environment, templates, s, w, show_error=config.show_error, progress=progress)
            )
            for s, w in (
                (solver, writer),
                (greedy(solver, config), greedy(writer, config) if writer else None),
            )
        ]
        yield Sampler(config, *made), engine


def speaker(engine: Engine, folder: Path, adapter: str, temperature: float, max_tokens: int) -> Speaker:
    """A speaker with the model's chat template; its turns keep their ids and log-probabilities."""
    tokenizer: Any = runtime.load_tokenizer(folder)
    return Speaker(
        engine, ChatRenderer(folder), Sampling(temperature, max_tokens=max_tokens), adapter, tokenizer
    )


def greedy(given: Speaker, config: MultiTurnConfig) -> Speaker:
    """The same speaker without chance, for validation and evaluation."""
    longest = given.sampling.max_tokens
    if given.adapter == SOLVER and config.evaluation.max_tokens is not None:
        longest = config.evaluation.max_tokens
    return replace(given, sampling=Sampling(0.0, max_tokens=longest))


def _writer(
    config: MultiTurnConfig, stack: ExitStack, solver: Speaker, correction_base: Path | None, logs: Path
) -> Speaker | None:
    """The feedback writer: a trained adapter, the untrained base, another model, or nobody."""
    if advice_of(config) != "model":
        return None
    sampling = Sampling(config.temperature, max_tokens=config.guidance_max_tokens)
    if correction_base is None:
        return replace(solver, adapter=FEEDBACK if config.guided else "", sampling=sampling)
    engine = open_engine(
        engine_settings(config, correction_base, adapters=False), log=logs / "correction-engine.log"
    )
    stack.callback(engine.close)
    other = speaker(engine, correction_base, "", config.temperature, config.guidance_max_tokens)
    return other
