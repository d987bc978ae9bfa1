"""What is reported of episodes: both turns' accuracy, the flips, collapse and hacking signals (METHODS 1.4, 1.3.3).

Turn 2 is run for all problems, without an oracle: Δ = acc@t2 - acc@t1 = Δ(i→c) - Δ(c→i), which is asserted. Unscored
episodes are left out and counted.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from reasoner.errors import ReasonerError, UsageError
from reasoner.methods.multiturn.advantages import zero_variance_share
from reasoner.methods.multiturn.episode import Episode, Turn, groups
from reasoner.records import Record
from reasoner.statistics import Estimate, estimate, mcnemar_exact, paired_interval


@dataclass(frozen=True, slots=True)
class TwoTurns(Record):
    """Both turns over the same n episodes. `p` is McNemar's exact test of turn 2 against turn 1.

    `delta_low` and `delta_high` bound Δ (Wald's interval for paired proportions, Agresti and Min 2005, with a half
    added to each cell of the table).
    """

    n: int
    unscored: int
    acc_t1: Estimate
    acc_t2: Estimate
    delta: float
    delta_low: float
    delta_high: float
    i_to_c: int
    c_to_i: int
    p: float


def trained_turn(method: str) -> int:
    """The solver turn that a method is judged on: ArCHer trains turn 1 and nothing else, the others end with turn 2."""
    return 1 if method == "archer" else 2


def reward_at(episode: Episode, turn: int) -> float | None:
    """The reward of solver turn 1 or 2; None where it has no verdict."""
    return episode.r1 if turn == 1 else episode.r2


def attempts_by_problem(episodes: Iterable[Episode]) -> dict[str, list[float]]:
    """The rewards of the first attempts at each problem, in order; those without a verdict are left out."""
    found: dict[str, list[float]] = {}
    for episode in episodes:
        if episode.r1 is not None:
            found.setdefault(episode.problem_id, []).append(episode.r1)
    return found


def two_turns(episodes: Sequence[Episode], confidence: float = 0.95) -> TwoTurns:
    """Measure episodes with two solver turns. Raises UsageError for a single-turn episode."""
    if any(e.refinement is None for e in episodes):
        raise UsageError("an episode has no second turn; turn 2 is run for all problems, right or wrong")
    scored = [e for e in episodes if e.scored]
    n = len(scored)
    k1, k2 = sum(e.r1 == 1 for e in scored), sum(e.r2 == 1 for e in scored)
    gained, lost = sum(e.r1 == 0 and e.r2 == 1 for e in scored), sum(e.r1 == 1 and e.r2 == 0 for e in scored)
    if k2 - k1 != gained - lost:
        raise ReasonerError(f"self-correction counts disagree: {k2} - {k1} is not {gained} - {lost}")
    low, high = paired_interval(gained, lost, n, confidence)
    return TwoTurns(
        n, len(episodes) - n, estimate(k1, n, confidence), estimate(k2, n, confidence),
        (k2 - k1) / n if n else 0.0, low, high, gained, lost, mcnemar_exact(gained, lost),
    )  # fmt: skip


def rollout_metrics(episodes: Sequence[Episode]) -> dict[str, float]:
    """Numbers of one rollout by their names in metrics.jsonl; those that have no meaning here are absent."""
    scored = [e for e in episodes if e.scored]
    found: dict[str, float] = {
        "episodes": len(episodes),
        "unscored_rate": share(episodes, lambda e: not e.scored),
        "acc_t1": share(scored, lambda e: e.r1 == 1),
    }
    final = [e.r2 if e.refinement is not None else e.r1 for e in scored]
    found["zero_variance_share"] = zero_variance_share([float(r or 0) for r in final], groups(scored))
    if any(e.refinement is not None for e in episodes):
        found |= {
            "acc_t2": share(scored, lambda e: e.r2 == 1),
            "i_to_c": share(scored, lambda e: e.r1 == 0 and e.r2 == 1),
            "c_to_i": share(scored, lambda e: e.r1 == 1 and e.r2 == 0),
            "edit": mean([edit(e) for e in episodes if e.refinement is not None]),
        }
        found["delta"] = found["acc_t2"] - found["acc_t1"]
    for name in ("attempt", "feedback", "refinement"):
        found |= _of_turns(name, [t for e in episodes if (t := getattr(e, name)) is not None])
    guided = [e for e in episodes if e.leak is not None]
    if guided:
        found["leak_rate"] = share(guided, lambda e: bool(e.leak))
        found["new_leak_rate"] = share(guided, lambda e: bool(e.new_leak))
    return found


def _of_turns(name: str, turns: list[Turn]) -> dict[str, float]:
    """Length and truncation of a kind of turn; for judged programs the unshown tests and the hack suspects."""
    if not turns:
        return {}
    found = {
        f"{name}_tokens": mean([t.tokens for t in turns]),
        f"{name}_cut": share(turns, lambda t: t.cut),
    }
    judged = [t.judged for t in turns if t.judged is not None]
    unshown = [j.unshown for j in judged if j.unshown is not None]
    if unshown:
        found[f"{name}_unshown"] = mean(unshown)
    looked = [j for j in judged if j.signs is not None]
    if looked:
        found[f"{name}_hack_suspects"] = share(looked, lambda j: bool(j.signs))
    return found


def edit(episode: Episode) -> float:
    """How much of the attempt the refinement changes, by lines: 0 is the same text, 1 nothing in common."""
    assert episode.refinement is not None
    first, second = episode.attempt.text.splitlines(), episode.refinement.text.splitlines()
    return 1.0 - SequenceMatcher(None, first, second, autojunk=False).ratio()


def explained_variance(values: Sequence[float], rewards: Sequence[float]) -> float | None:
    """1 - Var(R - V)/Var(R); None where the rewards do not vary."""
    spread = variance(rewards)
    if spread == 0.0:
        return None
    return 1.0 - variance([r - v for r, v in zip(rewards, values, strict=True)]) / spread


def variance(numbers: Sequence[float]) -> float:
    """The population variance; 0 for less than one number."""
    middle = mean(numbers)
    return mean([(x - middle) ** 2 for x in numbers])


def mean(numbers: Sequence[float]) -> float:
    """The mean, 0 of nothing."""
    return sum(numbers) / len(numbers) if numbers else 0.0


def share(rows: Sequence[Any], holds: Callable[[Any], bool]) -> float:
    """The share of rows for which something holds, 0 of nothing."""
    return mean([float(holds(row)) for row in rows])
