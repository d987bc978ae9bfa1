"""A comparison in plain words."""

from collections.abc import Iterator, Mapping

from reasoner.evaluation.comparison import POWER, Comparison, Flip, SetComparison
from reasoner.evaluation.seeds import Spread
from reasoner.report.words import p_value

CHANCE = 0.05


def sentence(found: SetComparison, sets: int = 1, a: str = "A", b: str = "B") -> str:
    """Who is better, by how much, how surely, and how many problems flipped."""
    points = 100 * abs(found.difference)
    if found.difference == 0:
        said = f"{a} and {b} are equal{_interval(found)}"
    else:
        ahead = b if found.difference > 0 else a
        verdict = "is better by" if found.p_holm < CHANCE else "is ahead, maybe by chance, by"
        said = f"{ahead} {verdict} {points:.1f} points{_interval(found)}"
    holm = f" ({p_value(found.p_holm)} after Holm over {sets} data sets)" if sets > 1 else ""
    several = " on average" if found.samples > 1 else ""
    return (
        f"{said}, p = {p_value(found.p)}{holm}; {len(found.gained)} problems gained{several}, {len(found.lost)} lost "
        f"by {b}"
    )


def _interval(found: SetComparison) -> str:
    """In the direction of the sentence: positive favours whoever is named."""
    if found.low is None or found.high is None:
        return " (no interval: the problems show no spread)"
    low, high = (found.low, found.high) if found.difference >= 0 else (-found.high, -found.low)
    return f" ({100 * found.confidence:g} %: {_signed(low)} to {_signed(high)})"


def _signed(share: float) -> str:
    return f"{100 * share:.1f}".replace("-", "−")


def power_sentence(found: SetComparison) -> str:
    """What the experiment could have shown."""
    if found.minimal_difference is None:
        return f"{found.n} problems of this kind are too few to show any difference."
    return (
        f"{found.n} problems show a true difference of {100 * found.minimal_difference:.1f} points in {POWER:.0%} of "
        "such experiments; a smaller one is mostly missed."
    )


def seed_lines(side: str, spread: Spread) -> Iterator[str]:
    """An arm's runs, their mean and their spread."""
    for seed in spread.runs:
        yield f"  {side} {seed.accuracy:6.1%} of {seed.n} problems  {seed.name}"
    accuracies = [seed.accuracy for seed in spread.runs]
    yield (
        f"  {side} {spread.mean:6.1%} mean of {len(accuracies)} runs, standard deviation "
        f"{100 * spread.deviation:.1f} points ({min(accuracies):.1%} to {max(accuracies):.1%})"
    )


def lines(
    found: Comparison,
    flips: int = 5,
    a: Mapping[str, Spread] | None = None,
    b: Mapping[str, Spread] | None = None,
) -> Iterator[str]:
    """The whole comparison for a terminal, with at most `flips` problems each way; `a` and `b` are runs of an arm with
    several seeds, by data set."""
    yield f"A  {found.a}"
    yield f"B  {found.b}"
    for one in found.sets:
        yield ""
        yield f"{one.dataset}: {sentence(one, len(found.sets))}."
        excluded = f"; {one.excluded} unscored left out" if one.excluded else ""
        method = (
            "McNemar's exact test"
            if one.test == "mcnemar"
            else f"cluster bootstrap, ≤ {one.samples} samples each"
        )
        yield f"  A {one.accuracy_a:.1%}, B {one.accuracy_b:.1%} of {one.n} problems{excluded} ({method})"
        yield f"  {power_sentence(one)}"
        for side, spreads in (("A", a), ("B", b)):
            if spreads and one.dataset in spreads:
                yield from seed_lines(side, spreads[one.dataset])
        yield from _flipped("gained", one.gained, flips)
        yield from _flipped("lost", one.lost, flips)
    for side, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            yield f"not compared, only in {side}: {', '.join(names)}"


def _flipped(word: str, flips: tuple[Flip, ...], limit: int) -> Iterator[str]:
    for flip in flips[:limit]:
        answers = f"{flip.answer_a or 'none'} → {flip.answer_b or 'none'}, gold {flip.gold or '?'}"
        shares = "" if {flip.a, flip.b} <= {0.0, 1.0} else f" ({flip.a:.0%} → {flip.b:.0%})"
        yield f"  {word:6} {flip.problem_id}  {flip.text}  [{answers}]{shares}"
    if len(flips) > limit > 0:
        yield f"  {word:6} … and {len(flips) - limit} more (--flips N, or --json for all)"
