"""What a plan is worth: correctness, token economy, independence (METHODS 4.4).

    original   r = w_c c + w_t (1 − min(T_worker / budget, 1)) + w_i ind;   invalid plan: 0.1
    gated      r = w_c c + c (w_t (1 − min(T / budget, 1)) + w_i ind);      invalid plan: 0

`ind` is unclipped in `original`, as there; T is the worker's tokens, and the planner's too where they count.
Unscored plans and filtered groups have no reward (None): they are masked, counted, and never 0. Groups are
filtered on correctness, because in an all-wrong group a shaped reward still varies and normalisation blows
that up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.config.planner import RewardConfig
from reasoner.errors import DataError, InfrastructureError
from reasoner.extensions import load_function
from reasoner.methods.planner.answers import judge
from reasoner.methods.planner.pipeline import PipelineExecutor, PipelineResult, Planned
from reasoner.preflight.rewards import require_one_each
from reasoner.records import Outcome, Record

INVALID_ORIGINAL = 0.1


@dataclass(frozen=True, slots=True)
class Scored(Record):
    """One plan's reward and what it is made of; `correct` is None where it is unscored."""

    valid: bool
    decomposed: bool
    correct: float | None
    efficiency: float
    independence: float
    worker_tokens: float
    planner_tokens: int
    truncated_calls: int
    extra_text: bool
    """Whether text stood around the planner's object."""
    reward: float | None


def combine(
    config: RewardConfig, *, valid: bool, correct: float | None, efficiency: float, independence: float
) -> float | None:
    """The reward of one plan by the formulas above; None where correctness is unknown."""
    if correct is None:
        return None
    if config.function:
        own = load_function(config.function, "reward.function")
        paid = own(valid=valid, correct=correct, efficiency=efficiency, independence=independence)
        return None if paid is None else float(paid)
    if not valid:
        return INVALID_ORIGINAL if config.mode == "original" else 0.0
    right = config.correctness_weight * correct
    sides = config.token_weight * efficiency + config.independence_weight * independence
    if config.mode == "original":
        return right + sides
    return right + correct * sides + config.format_bonus


def efficiency(config: RewardConfig, worker_tokens: float, planner_tokens: int) -> float:
    """1 without tokens, 0 from the budget on."""
    both = config.mode == "gated" and config.count_planner_tokens
    total = worker_tokens + (planner_tokens if both else 0)
    return 1.0 - min(total / config.token_budget, 1.0)


def mask_groups(scored: Sequence[Scored], group: int, config: RewardConfig) -> list[float | None]:
    """Rewards with those of filtered groups taken out; `scored` holds whole groups of `group` plans one by one."""
    if len(scored) % group:
        raise DataError(f"{len(scored)} plans are no whole groups of {group}")
    rewards: list[float | None] = []
    for start in range(0, len(scored), group):
        members = scored[start : start + group]
        known = {m.correct for m in members if m.correct is not None}
        equal = len(known) <= 1
        masked = equal and (
            config.filter_zero_variance == "correctness"
            or (config.mask_all_correct_side_terms and known == {1.0})
        )
        rewards.extend(None if masked else m.reward for m in members)
    return rewards


class PipelineRewardFunction:
    """A reward function for TRL: carries out each completion's plan and pays it. Call it with whole groups.

    `on_step` gets every step's scores with their texts. The data set's columns `question`, `gold` and
    `problem_id` come in by name; ground truth is never looked up.
    """

    __name__ = "pipeline"

    def __init__(
        self,
        executor: PipelineExecutor,
        config: RewardConfig,
        group: int,
        *,
        samples: int = 1,
        on_step: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """`group` completions a problem; each plan is carried out `samples` times."""
        self.executor, self.config, self.group, self.samples = executor, config, group, samples
        self._on_step = on_step

    def __call__(
        self,
        prompts: Sequence[str],
        completions: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        question: Sequence[str],
        gold: Sequence[str],
        problem_id: Sequence[str],
        trainer_state: Any = None,
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """One reward a completion, None where it is masked. Raises InfrastructureError where too many are
        unscored."""
        items = [Planned(*row) for row in zip(problem_id, question, completions, strict=True)]
        scored, results = self.score(items, gold, [len(ids) for ids in completion_ids])
        self._stop_if_unscored(scored)
        rewards = mask_groups(scored, self.group, self.config)
        require_one_each(rewards, len(completions), self.config.function or "the planner's reward")
        numbers = metrics(scored, rewards, self.group)
        if log_metric is not None:
            for name, value in numbers.items():
                log_metric(f"planner/{name}", value)
        if self._on_step is not None:
            rows = [
                {"problem_id": item.problem_id, "question": item.question, "gold": g, "planner": item.output,
                 "reason": result.reason, "answer_text": result.text, **score.to_row(), "used_reward": reward}
                for item, g, result, score, reward in zip(items, gold, results, scored, rewards, strict=True)
            ]  # fmt: skip
            step = trainer_state.global_step + 1 if trainer_state is not None else 0
            self._on_step({"step": step, "metrics": numbers, "rows": rows})
        return rewards

    def score(
        self, items: Sequence[Planned], gold: Sequence[str], planner_tokens: Sequence[int]
    ) -> tuple[list[Scored], list[PipelineResult]]:
        """Scores before any filter, and the first result of each plan."""
        repeated = [item for item in items for _ in range(self.samples)]
        results = self.executor.execute_batch(repeated)
        groups = [results[i : i + self.samples] for i in range(0, len(results), self.samples)]
        first = [group[0] for group in groups]
        rows = zip(groups, gold, planner_tokens, self._independences(first), strict=True)
        return [self._score(*row) for row in rows], first

    def _score(
        self, results: Sequence[PipelineResult], gold: str, planner_tokens: int, independence: float
    ) -> Scored:
        first = results[0]
        verdicts = [judge(result.text, gold) for result in results]
        known = [v.correct for v in verdicts if v.outcome != Outcome.UNSCORED]
        correct = sum(known) / len(known) if known else None
        tokens = sum(result.worker_tokens for result in results) / len(results)
        economy = efficiency(self.config, tokens, planner_tokens)
        reward = combine(
            self.config, valid=first.plan is not None, correct=correct, efficiency=economy,
            independence=independence,
        )  # fmt: skip
        cut = sum(result.truncated_calls for result in results)
        return Scored(
            first.plan is not None, first.decomposed, correct, economy, independence, tokens, planner_tokens, cut,
            first.extra_text, reward,
        )  # fmt: skip

    def _independences(self, results: Sequence[PipelineResult]) -> list[float]:
        """Not computed where their weight is 0, so that no embedder is needed then."""
        weighed = self.config.independence_weight > 0
        split = [r.plan.subproblems if r.plan and r.decomposed and weighed else () for r in results]
        found = self.executor.compute_independences(split, clip=self.config.mode == "gated")
        return [
            value if parts else self.config.neutral_independence
            for parts, value in zip(split, found, strict=True)
        ]

    def _stop_if_unscored(self, scored: Sequence[Scored]) -> None:
        unscored = sum(s.correct is None for s in scored)
        if unscored > self.config.max_unscored * len(scored):
            raise InfrastructureError(
                f"{unscored} of {len(scored)} plans of this step are unscored (reward.max_unscored="
                f"{self.config.max_unscored}): look for golds that are no numbers"
            )


def metrics(scored: Sequence[Scored], rewards: Sequence[float | None], group: int) -> dict[str, float]:
    """Means over a step: the components, before any filter, and what the filter left."""

    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values) if values else 0.0

    paid = sorted(s.reward for s in scored if s.reward is not None)
    valid = [s for s in scored if s.valid]
    groups = [rewards[i : i + group] for i in range(0, len(rewards), group)]
    correct = [s.correct for s in scored if s.correct is not None]
    spread = {
        f"reward_{name}": paid[round(share * (len(paid) - 1))] if paid else 0.0
        for name, share in (("min", 0), ("p25", 0.25), ("median", 0.5), ("p75", 0.75), ("max", 1))
    }
    return {
        "reward": mean(paid),
        **spread,
        "correct": mean(correct),
        "valid": mean([float(s.valid) for s in scored]),
        "decomposed": mean([float(s.decomposed) for s in valid]),
        "extra_text": mean([float(s.extra_text) for s in valid]),
        "efficiency": mean([s.efficiency for s in valid]),
        "independence": mean([s.independence for s in valid if s.decomposed]),
        "worker_tokens": mean([s.worker_tokens for s in valid]),
        "planner_tokens": mean([float(s.planner_tokens) for s in scored]),
        "truncated_worker_calls": float(sum(s.truncated_calls for s in scored)),
        "unscored": float(sum(s.correct is None for s in scored)),
        "groups_used": mean([float(any(r is not None for r in g)) for g in groups]),
    }
