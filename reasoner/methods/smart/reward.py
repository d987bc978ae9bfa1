"""What a policy's response is worth: 1 where its verdict is correct and it ended by itself, else 0.

An unscored response has no reward (None): it is masked, counted, and never 0. A group whose scored responses are all
right or all wrong teaches nothing and is masked, too.
"""

from collections.abc import Callable, Sequence
from typing import Any

from reasoner.errors import DataError
from reasoner.methods.smart.attempts import Attempt
from reasoner.records import Strategy

Judge = Callable[[Sequence[dict[str, Any]]], list[Attempt]]
"""One attempt a row of completions, in order, as the stage `verify` judges them."""


def worth(attempt: Attempt) -> float | None:
    """1 or 0; None where the verdict is unscored."""
    if not attempt.scored:
        return None
    return float(attempt.right and not attempt.truncated)


def mask_groups(worths: Sequence[float | None], group: int) -> list[float | None]:
    """Rewards with those of equal groups taken out; `worths` holds whole groups of `group` responses one by one."""
    if len(worths) % group:
        raise DataError(f"{len(worths)} responses are no whole groups of {group}")
    rewards: list[float | None] = []
    for start in range(0, len(worths), group):
        members = worths[start : start + group]
        equal = len({worth for worth in members if worth is not None}) < 2
        rewards.extend([None] * group if equal else members)
    return rewards


class VerdictReward:
    """A reward function for TRL. Call it with whole groups, and with the `text` and `finish` that the engine gave.

    `on_step` gets every step's responses with their verdicts.
    """

    __name__ = "verdict"

    def __init__(
        self, judge: Judge, group: int, on_step: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        """`group` responses a problem."""
        self._judge, self._group, self._on_step = judge, group, on_step

    def __call__(
        self,
        prompts: Sequence[str],
        completions: Sequence[str],
        completion_ids: Sequence[Sequence[int]],
        text: Sequence[str],
        finish: Sequence[str],
        question: Sequence[str],
        gold: Sequence[str],
        problem_id: Sequence[str],
        trainer_state: Any = None,
        log_metric: Callable[[str, float], None] | None = None,
        **_: Any,
    ) -> list[float | None]:
        """One reward a completion, None where it is masked."""
        given = zip(problem_id, gold, text, finish, strict=True)
        attempts = self._judge([row(i % self._group, *one) for i, one in enumerate(given)])
        worths = [worth(attempt) for attempt in attempts]
        rewards = mask_groups(worths, self._group)
        lengths = [len(ids) for ids in completion_ids]
        numbers = metrics(attempts, worths, rewards, lengths, self._group)
        if log_metric is not None:
            for name, value in numbers.items():
                log_metric(f"smart/{name}", value)
        if self._on_step is not None:
            rows = [
                {"problem_id": attempt.problem_id, "question": asked, "gold": g, "response": attempt.text,
                 "strategy": attempt.strategy, "outcome": str(attempt.verdict.outcome),
                 "reason": attempt.verdict.reason, "extracted": attempt.verdict.extracted, "finish": attempt.finish,
                 "tokens": length, "reward": found, "used_reward": reward}
                for attempt, asked, g, length, found, reward in zip(
                    attempts, question, gold, lengths, worths, rewards, strict=True
                )
            ]  # fmt: skip
            step = trainer_state.global_step + 1 if trainer_state is not None else 0
            self._on_step({"step": step, "metrics": numbers, "rows": rows})
        return rewards


def row(index: int, problem_id: str, gold: str, text: str, finish: str) -> dict[str, Any]:
    """A policy's first attempt as a row of completions."""
    return {
        "problem_id": problem_id, "gold": gold, "strategy": "", "turn": 1, "tried": [], "index": index, "text": text,
        "finish": finish,
    }  # fmt: skip


def metrics(
    attempts: Sequence[Attempt], worths: Sequence[float | None], rewards: Sequence[float | None],
    lengths: Sequence[int], group: int,
) -> dict[str, float]:  # fmt: skip
    """Means over a step, before any filter, and what the filter left. Strategies are shares of all responses."""

    def share(values: Sequence[float]) -> float:
        return sum(values) / len(values) if values else 0.0

    paid = [value for value in worths if value is not None]
    groups = [rewards[i : i + group] for i in range(0, len(rewards), group)]
    return {
        "reward": share(paid),
        "correct": share([float(a.right) for a in attempts if a.scored]),
        **{s.value: share([float(a.strategy is s) for a in attempts]) for s in Strategy},
        "no_strategy": share([float(a.strategy is None) for a in attempts]),
        "truncated": share([float(a.truncated) for a in attempts]),
        "tokens": share([float(n) for n in lengths]),
        "unscored": float(len(worths) - len(paid)),
        "groups_used": share([float(any(r is not None for r in g)) for g in groups]),
    }
