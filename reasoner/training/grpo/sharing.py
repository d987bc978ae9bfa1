"""Several processes of one GRPO training: the first samples and judges for all, and each learns from rows of its own.

The rows that TRL gives to each are gathered in the order of one process, so that the same completions are drawn and
paid as by one. With one process everything is as it would be without this.
"""

from collections.abc import Callable
from typing import Any

from reasoner.training.together import by_first


def shared_rollout(
    rollout: Callable[[list[Any], Any], dict[str, Any]],
    make_room: Callable[[], None] = lambda: None,
) -> Callable[[list[Any], Any], dict[str, Any]]:
    """A rollout function of TRL's that the first process calls for all, when each has called `make_room`."""

    def run(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        make_room()

        def work(everyone: list[Any]) -> list[dict[str, Any]]:
            found = rollout(everyone, trainer)
            return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)]

        rows = by_first(work, prompts)
        return {name: [row[name] for row in rows] for name in rows[0]}

    return run


class SharedReward:
    """A reward function of TRL's that the first process calls for all."""

    def __init__(self, reward: Any) -> None:
        self._reward = reward
        self.__name__ = reward.__name__

    def __call__(
        self, *, trainer_state: Any = None, log_metric: Any = None, log_extra: Any = None, **columns: Any
    ) -> list[Any]:
        """`columns` hold a value a completion, under the names that the reward function knows them by."""

        def work(everyone: list[Any]) -> list[Any]:
            given = dict(zip(columns, map(list, zip(*everyone, strict=True)), strict=True))
            paid = self._reward(
                trainer_state=trainer_state, log_metric=log_metric, log_extra=log_extra, **given
            )
            return list(paid)

        return by_first(work, list(zip(*columns.values(), strict=True)))
