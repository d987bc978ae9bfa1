"""ArCHer's criterion of success: training reward above the base's, bootstrap p < 0.05 (METHODS 3.7).

The base's training reward is that of the rollouts before the first actor step: those of the warm-up and the next one.
They are compared with as many last rollouts, sampled alike; the kept checkpoint may be an earlier one. A problem counts
once in each group, by its mean reward.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from reasoner.methods.multiturn.episode import Episode
from reasoner.methods.multiturn.metrics import attempts_by_problem
from reasoner.report.words import p_value
from reasoner.statistics.rise import pooled_rise
from reasoner.store.rows import iter_rows

ALPHA = 0.05


def judge(trained: Path, warmup: int) -> dict[str, Any]:
    """The criterion for what a training left in `trained`/episodes, `warmup` being its `warmup_iter`.

    A row of `statistics.rise.Rise` with `rollouts` (of each group) and `improved`, which is None where no rollout
    followed an actor step.
    """
    files = sorted((trained / "episodes").glob("*.jsonl"))
    base = [f for f in files if int(f.stem) <= warmup + 1]
    later = [f for f in files if int(f.stem) > warmup + 1]
    count = min(len(base), len(later))
    found = pooled_rise(_rewards(base), _rewards(later[len(later) - count :]))
    improved = None
    if found.p is not None and found.before is not None and found.after is not None:
        improved = found.after > found.before and found.p < ALPHA
    return {"rollouts": [len(base), count], **found.to_row(), "improved": improved}


def sentence(found: Mapping[str, Any]) -> str:
    """The criterion's outcome in words."""
    if found["improved"] is None:
        return "Criterion (METHODS 3.7): not decided, since no scored rollout follows an actor step."
    word = "improved" if found["improved"] else "not improved"
    first, last = found["rollouts"]
    return (
        f"Criterion (METHODS 3.7): **{word}**. Training reward {found['before']:.3f} of the untrained policy "
        f"({first} rollouts, {found['n_before']} problems), {found['after']:.3f} in the last {last} "
        f"({found['n_after']} problems); bootstrap over problems, one-sided p {p_value(found['p'])}, "
        f"wanted below {ALPHA:g}."
    )


def _rewards(files: Iterable[Path]) -> list[float]:
    """The mean reward of the attempts at each problem."""
    episodes = (Episode.from_row(row) for path in files for row in iter_rows(path))
    return [sum(rewards) / len(rewards) for rewards in attempts_by_problem(episodes).values()]
