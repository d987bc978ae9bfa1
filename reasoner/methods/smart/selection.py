"""The random draws that choose among training records.

Every draw orders items by a seed derived from the run's seed, the draw's name and the item's content. So it
depends neither on the order of the input nor on other draws.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from reasoner.errors import DataError
from reasoner.ids import derived_seed
from reasoner.methods.smart.records import SolutionRecord
from reasoner.records import Problem, Strategy

Item = TypeVar("Item")
_Keyed = tuple[str, SolutionRecord]
"""A record with what it is drawn by."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Chosen records in their canonical order, and counts that say what became of everything else."""

    records: tuple[SolutionRecord, ...]
    counts: dict[str, int]

    @property
    def by_strategy(self) -> dict[str, int]:
        """Records by target strategy; every strategy is there."""
        found = Counter(record.strategy for record in self.records)
        return {strategy.value: found[strategy] for strategy in Strategy}


def index_problems(problems: Iterable[Problem]) -> dict[str, Problem]:
    """Problems by id."""
    return {problem.id: problem for problem in problems}


def require_known(ids: Iterable[str], problems: dict[str, Problem], what: str) -> None:
    """Raise DataError when an attempt belongs to no given problem."""
    strangers = sorted(set(ids) - set(problems))
    if strangers:
        raise DataError(
            f"{what}: {len(strangers)} of the problem ids are not among the {len(problems)} problems, "
            f"the first is {strangers[0]}; give the problems that the attempts were made from"
        )


def draw(items: Sequence[Item], key: Callable[[Item], str], count: int, *seed: Any) -> list[Item]:
    """`count` of `items` at random without replacement, in random order; `key` is an item's identity."""
    return sorted(items, key=lambda item: (derived_seed(*seed, key(item)), key(item)))[:count]


def pick(items: Sequence[Item], *seed: Any) -> Item:
    """One of `items`, which the caller gives in a canonical order."""
    return items[derived_seed(*seed) % len(items)]


def trim(
    records: Iterable[SolutionRecord],
    *,
    balance: bool,
    max_records: int | None,
    seed: tuple[Any, ...],
    rarity: float = 0.0,
) -> tuple[tuple[SolutionRecord, ...], dict[str, int]]:
    """Balance the strategies, cap the total, and put what is left into its canonical random order.

    Balancing caps every strategy, direct and refine records together, at the count of the rarest strategy
    that has records at all: a strategy that never succeeds must not empty the set. Then `rarity` r repeats
    records: a strategy with n of them gets n (N/n)^r in all, where N is the count of the most frequent one,
    each of its records as often as any other of them up to one. The cap on the total comes last.
    Returns the records and the counts `dropped_balance`, `repeated` and `dropped_max`.
    """
    keyed = [(record.id, record) for record in records]
    found = len(keyed)
    groups: dict[Strategy, list[_Keyed]] = {}
    for item in keyed:
        groups.setdefault(item[1].strategy, []).append(item)
    if balance and keyed:
        cap = min(len(group) for group in groups.values())
        groups = {s: draw(group, _first, cap, *seed, "balance") for s, group in groups.items()}
        keyed = [item for group in groups.values() for item in group]
    balanced = len(keyed)
    if rarity and keyed:
        most = max(len(group) for group in groups.values())
        keyed = [i for g in groups.values() for i in _repeated(g, most, rarity, *seed, "rarity")]
    weighted = len(keyed)
    if max_records is not None and weighted > max_records:
        keyed = draw(keyed, _first, max_records, *seed, "max_records")
    ordered = draw(keyed, _first, len(keyed), *seed, "order")
    counts = {
        "dropped_balance": found - balanced,
        "repeated": weighted - balanced,
        "dropped_max": weighted - len(keyed),
    }
    return tuple(record for _, record in ordered), counts


def _repeated(group: list[_Keyed], most: int, rarity: float, *seed: Any) -> list[_Keyed]:
    """The group with copies; a copy's key differs from the original's, so that each is drawn by itself."""
    wanted = round(len(group) * (most / len(group)) ** rarity)
    shuffled = draw(group, _first, len(group), *seed)
    return [
        (f"{key} {copy}" if copy else key, record)
        for copy, (key, record) in ((i // len(group), shuffled[i % len(group)]) for i in range(wanted))
    ]


def _first(item: _Keyed) -> str:
    return item[0]
