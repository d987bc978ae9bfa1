"""One iteration's learning of SCoRe, RL-guided SCoRe and MLMT: a scored rollout in, updated weights and metrics out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.ids import derived_seed
from reasoner.methods.multiturn import mlmt, rl_guided, score
from reasoner.methods.multiturn.advantages import Credit
from reasoner.methods.multiturn.episode import FEEDBACK, SOLVER, Episode, Kind
from reasoner.methods.multiturn.mlmt import FeedbackSettings, SolverSettings, Values
from reasoner.onpolicy.parts import Part, Parts
from reasoner.records import Problem
from reasoner.training.multiturn.gate import LoopGate
from reasoner.training.multiturn.parts import Learned
from reasoner.training.multiturn.policy_update import settings_of, update
from reasoner.training.multiturn.scoring import Processes, Scored, kl_metrics, turns_of
from reasoner.training.multiturn.scoring import score as score_turns
from reasoner.training.multiturn.value_update import ValueUpdate
from reasoner.training.multiturn.values import State, snapshot


@dataclass
class Learner:
    """Learns from rollouts of two solver turns."""

    learned: Learned
    config: MultiTurnConfig
    processes: Processes
    parts: Parts = field(default_factory=Parts)

    def __post_init__(self) -> None:
        self._gate = LoopGate(self.config, self.learned.policy.device.type)

    def learn(
        self, iteration: int, episodes: Sequence[Episode], problems: Mapping[str, Problem]
    ) -> dict[str, float]:
        """Update what is active in this iteration. `episodes` are scored. Raises TrainingError at the gate."""
        rows, config = list(episodes), self.config
        with self.parts.part(Part.LOGPROBS):
            scored = score_turns(
                self.learned.policy, turns_of(rows), config.temperature, self.learned.micro, self.processes
            )
        self._gate.check(scored, iteration + 1, fresh=iteration == 0)
        metrics = kl_metrics(scored)
        if config.method == "mlmt":
            return metrics | self._mlmt(iteration, rows, problems, scored)
        if config.train_solver:
            metrics |= self._score(iteration, rows, scored)
        if config.guided:
            rewards = rl_guided.feedback_rewards(rows, config.guidance_reward, config.leak_penalty)
            guidance = rl_guided.feedback_credits(
                rows, rewards, _kl(scored, rows, Kind.FEEDBACK), config.guidance_kl_coef, config.kl == "loss"
            )
            metrics |= self._update(FEEDBACK, guidance, scored, iteration)
        return metrics

    def _score(self, iteration: int, rows: list[Episode], scored: Scored) -> dict[str, float]:
        """The solver's update of SCoRe, in the stage of this iteration."""
        config = self.config
        stage = score.stage_at(iteration, config.stage1_steps)
        coefficients = score.Coefficients(config.alpha, config.beta1, config.beta2, config.kl == "loss")
        first, second = (_kl(scored, rows, kind) for kind in (Kind.ATTEMPT, Kind.REFINEMENT))
        credits = score.credits(rows, first, second, stage, coefficients)
        return {"stage": stage} | self._update(SOLVER, credits, scored, iteration)

    def _mlmt(
        self, iteration: int, rows: list[Episode], problems: Mapping[str, Problem], scored: Scored
    ) -> dict[str, float]:
        config, metrics = self.config, dict[str, float]()
        solver_active, feedback_active = mlmt.active(iteration, config.ratio)
        value = self._value(rows, problems)
        values: Values | None = None
        if value is not None:
            self._begin_cycle(iteration)
            values = value.values(vstar=False)
            metrics |= value.explained(values) | value.regress(iteration)
        if solver_active and config.train_solver:
            settings = SolverSettings(config.baseline, config.beta1, config.kl == "loss")
            credits = mlmt.solver_credits(rows, _kl(scored, rows, Kind.ATTEMPT), _kl(scored, rows, Kind.REFINEMENT),
                                          values, settings)  # fmt: skip
            metrics |= self._update(SOLVER, credits, scored, iteration)
        self._end_solver_updates(iteration)
        if config.guided and feedback_active:
            if value is not None and config.shaping == "v3_minus_vstar":
                values = value.values(vstar=True)
            metrics |= self._feedback(iteration, rows, values, scored, value)
        return metrics

    def _feedback(
        self,
        iteration: int,
        rows: list[Episode],
        values: Values | None,
        scored: Scored,
        value: ValueUpdate | None,
    ) -> dict[str, float]:
        config = self.config
        settings = FeedbackSettings(
            config.shaping, config.value_coef, config.guidance_baseline, config.guidance_reward,
            config.guidance_kl_coef, config.kl == "loss", config.leak_penalty,
        )  # fmt: skip
        credits = mlmt.feedback_credits(rows, _kl(scored, rows, Kind.FEEDBACK), values, settings)
        metrics = self._update(FEEDBACK, credits, scored, iteration, value)
        if values is not None:
            shaping = mlmt.shaped(values, config.shaping)
            metrics["shaping"] = sum(shaping) / len(shaping)
        return metrics

    def _value(self, rows: list[Episode], problems: Mapping[str, Problem]) -> ValueUpdate | None:
        if self.learned.value is None:
            return None
        states = [State.of(problems[e.problem_id], e) for e in rows]
        return ValueUpdate(self.learned, self.config, rows, states, self.processes, self.parts)

    def _begin_cycle(self, iteration: int) -> None:
        """ψ as it is before a cycle's solver updates."""
        assert self.learned.value is not None
        if self.config.shaping == "v3_minus_vstar" and iteration % sum(self.config.ratio) == 0:
            self.learned.before = snapshot(self.learned.value)

    def _end_solver_updates(self, iteration: int) -> None:
        """ψ_k after the k = t_L solver updates of a cycle: V* is its value."""
        solver, feedback = self.config.ratio
        last = iteration % (solver + feedback) == solver - 1
        if last and self.config.shaping == "v3_minus_vstar" and self.learned.value is not None:
            self.learned.after = snapshot(self.learned.value)

    def _update(
        self,
        adapter: str,
        credits: list[Credit],
        scored: Scored,
        iteration: int,
        value: ValueUpdate | None = None,
    ) -> dict[str, float]:
        extra = value.extra() if value is not None else None
        beside = value.beside() if value is not None and extra is not None else None
        own = self.learned.optimisers[adapter]
        value_optimiser = self.learned.optimisers.get("value") if extra is not None else None

        def step_value() -> None:
            if value_optimiser is not None:
                value_optimiser.step(iteration)

        def reset() -> None:
            own.zero()
            if value_optimiser is not None:
                value_optimiser.zero()

        reset()
        return update(
            self.learned.policy, adapter, own, credits, scored.reference, settings_of(self.config, adapter),
            self.processes, self.learned.micro, iteration=iteration,
            seed=derived_seed(self.config.seed, adapter, iteration), extra=extra, beside=beside, after_step=step_value,
            reset=reset, parts=self.parts,
        )  # fmt: skip


def _kl(scored: Scored, rows: Sequence[Episode], kind: Kind) -> list[float]:
    """The sequence KL of a kind of turn by row; 0 where an episode has none."""
    return [scored.kl.get((i, kind), 0.0) for i in range(len(rows))]
