"""The control at equal compute: two independent first attempts at each problem, beside the trained turn.

One of the two is what a single sample is worth; either of them is what an oracle would get from both, an upper bound
for any way to choose. Both are compared with the trained turn on the same problems.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from reasoner.methods.multiturn.episode import Episode
from reasoner.methods.multiturn.metrics import attempts_by_problem, reward_at
from reasoner.report.words import p_value
from reasoner.statistics import estimate, mcnemar_exact, paired_interval
from reasoner.statistics.bootstrap import cluster_test, paired_difference

SAMPLES = 2


def measure(samples: Sequence[Episode], main: Sequence[Episode], turn: int) -> dict[str, Any]:
    """The control's shares with their 95 % intervals, and the trained turn's rewards less the control's.

    `samples` are single-turn episodes, `main` the trained evaluation. A problem without two verdicts is left out,
    and of the comparisons one whose trained turn has none. `one` (bootstrap over problems) and `either` (Wilson) are of
    `n` problems; `against_one` is the paired cluster bootstrap, `against_either` McNemar's test with Agresti and Min's
    interval.
    """
    drawn = attempts_by_problem(samples)
    whole = {name: rewards for name, rewards in drawn.items() if len(rewards) == SAMPLES}
    means = [sum(rewards) / SAMPLES for rewards in whole.values()]
    trained = {e.problem_id: r for e in main if (r := reward_at(e, turn)) is not None}
    both = [(whole[name], trained[name]) for name in whole if name in trained]
    gained = sum(r > max(rewards) for rewards, r in both)
    lost = sum(r < max(rewards) for rewards, r in both)
    n = len(both)
    low, high = paired_interval(gained, lost, n, 0.95)
    return {
        "n": len(whole), "turn": turn,
        "one": paired_difference(means, [0.0] * len(means)).to_row(),
        "either": estimate(sum(max(r) == 1 for r in whole.values()), len(whole)).to_row(),
        "against_one": cluster_test([rewards for rewards, _ in both], [[r] for _, r in both]).to_row(),
        "against_either": {
            "n": n, "only_main": gained, "only_control": lost, "value": (gained - lost) / n if n else None,
            "low": low, "high": high, "p": mcnemar_exact(gained, lost),
        },
    }  # fmt: skip


def sentence(found: Mapping[str, Any]) -> str:
    """What the control says."""
    one, either = found["one"], found["either"]
    compute = "equal compute" if found["turn"] == SAMPLES else "twice the compute"
    return (
        f"two independent first attempts at {compute} (N={found['n']}, sampled): one is right with "
        f"{_share(one)}; either (an oracle chooses) {_share(either)}. Turn {found['turn']} of the trained policy, on "
        f"the same problems: {_difference(found['against_one'])} against one; "
        f"{_difference(found['against_either'])} against either"
    )


def _share(found: Mapping[str, Any]) -> str:
    return f"{found['value']:.3f} ({found['low']:.3f}–{found['high']:.3f})"


def _difference(found: Mapping[str, Any]) -> str:
    if found["value"] is None:
        return "nothing to compare"
    interval = "no interval" if found["low"] is None else f"{found['low']:+.3f} to {found['high']:+.3f}"
    return f"{found['value']:+.3f} ({interval}, p {p_value(found['p'])}, N={found['n']})"
