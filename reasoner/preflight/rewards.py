"""Gate: a reward function gives one number, or None for a masked completion, to each completion."""

import math
from collections.abc import Sequence

from reasoner.errors import TrainingError


def require_one_each(rewards: Sequence[float | None], completions: int, where: str) -> None:
    """Raises TrainingError where one is missing, too many, no number or not finite."""
    if len(rewards) != completions:
        raise TrainingError(
            f"{where}: {len(rewards)} rewards for {completions} completions; return one a completion, None to mask it"
        )
    for i, reward in enumerate(rewards):
        if reward is not None and not (isinstance(reward, int | float) and math.isfinite(reward)):
            raise TrainingError(
                f"{where}: the reward of completion {i} is {reward!r}; return a finite number, or None to mask it"
            )
