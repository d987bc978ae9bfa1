"""The sampling side of the loop, in the first process alone: on-policy sampler, environment, rollouts."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.engines.protocol import EngineSettings, PolicyEngine
from reasoner.engines.start import open_engine
from reasoner.environments import open_environment
from reasoner.ids import derived_seed
from reasoner.methods.multiturn.episode import FEEDBACK, SOLVER, Episode
from reasoner.methods.multiturn.rollout import Advice, Rollouts
from reasoner.methods.multiturn.speaker import PlainVoice, SampledVoice, Speaker, Voice
from reasoner.onpolicy.opening import adapters_for, open_server, policy_settings
from reasoner.onpolicy.parts import Parts
from reasoner.onpolicy.sampler import OnPolicySampler
from reasoner.prompts import ChatRenderer
from reasoner.prompts.turns import load_turns
from reasoner.records import Problem, Sampling
from reasoner.training import runtime
from reasoner.training.multiturn.policy import Policy

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""The LoRA ranks that vLLM can be started for."""


def engine_of(config: MultiTurnConfig, folder: Path, *, adapters: bool) -> EngineSettings:
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
    """Rollouts for training and for validation by one engine or several, under the adapters that were sent last."""

    def __init__(
        self, config: MultiTurnConfig, policies: OnPolicySampler, training: Rollouts, greedy: Rollouts
    ) -> None:
        self.config, self._policies, self._training, self._greedy = config, policies, training, greedy
        self.advice = advice_of(config)

    def sync(self, policy: Policy) -> None:
        """Serve the adapters as they are now."""
        for name in policy.adapters:
            self._policies.sync(name, policy.model, name)

    def rollout(self, problems: Sequence[Problem], seed: int) -> list[Episode]:
        """`group_size` sampled episodes a problem: of one turn for ArCHer, else of all turns."""
        if self.config.method == "archer":
            return self._training.single_turns(problems, self.config.group_size, seed)
        return self._training.episodes(problems, self.config.group_size, seed, self.advice)

    def fresh(self, problems: Sequence[Problem], seed: int, judge: bool) -> list[Episode]:
        """One sampled attempt a given problem, in order; a problem may come more than once."""
        return self._training.drawn(problems, seed, judge)

    def rest(self) -> None:
        """Let the engine sleep where it shares the card; call it before an update."""
        self._policies.rest()

    def validate(self, problems: Sequence[Problem], seed: int) -> list[Episode]:
        """One greedy episode a problem, both turns."""
        return self._greedy.episodes(problems, 1, seed, self.advice)

    def check_lengths(
        self, train: Sequence[Problem], evaluated: Sequence[Problem], max_model_len: int
    ) -> None:
        """See `Rollouts.check_lengths`; an evaluation's turns may be longer than the training's."""
        self._training.check_lengths(train, max_model_len)
        self._greedy.check_lengths(evaluated, max_model_len)


@contextmanager
def open_sampler(
    config: MultiTurnConfig,
    base: Path,
    correction_base: Path | None,
    logs: Path,
    max_model_len: int,
    parts: Parts,
) -> Iterator[Sampler]:
    """A sampler with its engine; both end with the block. Raises as `open_engine` and `open_environment`."""
    tokenizer = runtime.load_tokenizer(base)
    server, shared = config.compute.server, config.compute.shares_card
    settings = policy_settings(engine_of(config, base, adapters=True), 1, shared)
    verify, templates = config.verify, load_turns(config.prompts)

    def start() -> PolicyEngine:
        if server.url:
            return open_server(
                server, replace(settings, options={**settings.options, "max_model_len": max_model_len})
            )
        return open_engine(settings, log=logs / "engine.log", engines=config.samplers)

    with ExitStack() as stack:
        environment = stack.enter_context(
            open_environment(
                config.env_type, show_tests=config.show_tests, workers=verify.workers, timeout=verify.timeout
            )
        )
        policies = stack.enter_context(
            OnPolicySampler(
                start,
                tokenizer,
                max_model_len,
                folder=adapters_for(server),
                parts=parts,
                share_card=shared,
            )
        )
        sampling = Sampling(config.temperature, max_tokens=config.max_tokens)
        solver = Speaker(SampledVoice(policies), ChatRenderer(base), sampling, SOLVER, tokenizer)
        writer = _writer(config, stack, solver, correction_base, logs)

        def rollouts(first: Speaker, second: Speaker | None) -> Rollouts:
            made = Rollouts(environment, templates, first, second, show_error=config.show_error, parts=parts)
            return stack.enter_context(made)

        training = rollouts(solver, writer)
        yield Sampler(
            config,
            policies,
            training,
            rollouts(greedy(solver, config), greedy(writer, config) if writer else None),
        )


def plain_speaker(voice: Voice, folder: Path, adapter: str, max_tokens: int) -> Speaker:
    """A greedy speaker with the model's chat template, for evaluation."""
    sampling, tokenizer = Sampling(0.0, max_tokens=max_tokens), runtime.load_tokenizer(folder)
    return Speaker(voice, ChatRenderer(folder), sampling, adapter, tokenizer)


def greedy(given: Speaker, config: MultiTurnConfig) -> Speaker:
    """The same speaker without chance and without ids, for validation."""
    longest = given.sampling.max_tokens
    if given.adapter == SOLVER and config.evaluation.max_tokens is not None:
        longest = config.evaluation.max_tokens
    voice = given.voice
    if isinstance(voice, SampledVoice):
        voice = SampledVoice(voice.sampler, keep=False)
    return replace(given, sampling=Sampling(0.0, max_tokens=longest), voice=voice)


def _writer(
    config: MultiTurnConfig, stack: ExitStack, solver: Speaker, correction_base: Path | None, logs: Path
) -> Speaker | None:
    """The feedback writer: a trained adapter, the untrained base, another model, or nobody."""
    if advice_of(config) != "model":
        return None
    sampling = Sampling(config.temperature, max_tokens=config.guidance_max_tokens)
    if correction_base is None:
        return replace(solver, adapter=FEEDBACK if config.guided else "", sampling=sampling)
    settings = engine_of(config, correction_base, adapters=False)
    engine = open_engine(settings, log=logs / "correction-engine.log")
    stack.callback(engine.close)
    speaker = plain_speaker(PlainVoice(engine), correction_base, "", config.guidance_max_tokens)
    return replace(speaker, sampling=sampling)
