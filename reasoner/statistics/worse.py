"""Whether a model has become worse on the same problems: a paired one-sided test on one set, Holm over several."""

from collections.abc import Mapping
from dataclasses import dataclass

from reasoner.errors import UsageError
from reasoner.records import Record
from reasoner.statistics.intervals import Estimate, estimate
from reasoner.statistics.paired import fair_tail, holm


def mcnemar_worse(lost: int, gained: int) -> float:
    """One-sided exact p of McNemar's test that more problems were lost than chance takes.

    `lost` problems were right before and are wrong now, `gained` the other way round. Where nothing changed but by
    chance, `lost` is binomial(lost + gained, 1/2); p = P(X >= lost). Without discordant problems p is 1.
    Source: Q. McNemar, Psychometrika 12 (1947) 153-157.
    """
    if lost < 0 or gained < 0:
        raise UsageError(f"discordant counts cannot be negative: {lost}, {gained}")
    return fair_tail(gained, lost + gained)  # as many gained or fewer, by symmetry


Outcomes = Mapping[str, bool | None]
"""By problem id: right, wrong, or None where it is not known."""


@dataclass(frozen=True, slots=True)
class Change(Record):
    """One set, then and now, on the problems that are scored both times."""

    n: int
    before: Estimate
    now: Estimate
    lost: int
    """Right before, wrong now."""
    gained: int
    excluded: int
    """Problems that are unscored at least once."""
    p: float
    """Exact one-sided McNemar."""
    p_holm: float
    """Holm-adjusted over the sets."""
    worse: bool
    """Whether `p_holm` is at most alpha."""


def changes(
    sets: Mapping[str, tuple[Outcomes, Outcomes]], alpha: float, *, confidence: float = 0.95
) -> dict[str, Change]:
    """Compare (before, now) of each set. Where nothing has changed, the chance that any set is called worse is at
    most `alpha`.

    Raises UsageError where the two do not hold the same problems, which a paired test needs, or none is scored twice.
    """
    counted = {name: _count(name, *pair) for name, pair in sets.items()}
    tests = judged({name: (lost, gained) for name, (_, _, _, lost, gained, _) in counted.items()}, alpha)
    return {
        name: Change(
            n, estimate(k0, n, confidence), estimate(k1, n, confidence), lost, gained, excluded, *tests[name]
        )
        for name, (n, k0, k1, lost, gained, excluded) in counted.items()
    }  # fmt: skip


def judged(counts: Mapping[str, tuple[int, int]], alpha: float) -> dict[str, tuple[float, float, bool]]:
    """From (lost, gained) of each set: p, p Holm-adjusted over the sets, and whether that is at most `alpha`."""
    ps = [mcnemar_worse(lost, gained) for lost, gained in counts.values()]
    return {name: (p, p_holm, p_holm <= alpha) for name, p, p_holm in zip(counts, ps, holm(ps), strict=True)}


def _count(name: str, before: Outcomes, now: Outcomes) -> tuple[int, int, int, int, int, int]:
    if before.keys() != now.keys():
        shared = len(before.keys() & now.keys())
        raise UsageError(
            f"{name}: not the same problems ({len(before)} then, {len(now)} now, {shared} in both), so they can't be"
            " compared in pairs"
        )
    pairs = [(a, now[i]) for i, a in before.items() if a is not None and now[i] is not None]
    if not pairs:
        raise UsageError(f"{name}: no problem is scored both times, so nothing can be compared")
    lost, gained = pairs.count((True, False)), pairs.count((False, True))
    k0, k1 = sum(bool(a) for a, _ in pairs), sum(bool(b) for _, b in pairs)
    return len(pairs), k0, k1, lost, gained, len(before) - len(pairs)
