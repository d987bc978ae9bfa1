"""The one-sided paired test: known values, agreement with the two-sided one, and what it does in the long run.

Wrong if an unchanged model is called worse more often than alpha says, if a worse one is not seen, or if a better one
is called worse.
"""

import gc
import random
from collections.abc import Iterator

import pytest
from scipy.stats import binom

from reasoner.errors import UsageError
from reasoner.statistics import mcnemar_exact
from reasoner.statistics.worse import changes, judged, mcnemar_worse

ALPHA = 0.01
NIGHTS = 200


@pytest.mark.parametrize(
    ("lost", "gained", "p"),
    [(0, 0, 1.0), (7, 0, 1 / 128), (0, 7, 1.0), (5, 1, 7 / 64), (1, 1, 0.75), (10, 2, 79 / 4096)],
)
def test_known_values(lost: int, gained: int, p: float) -> None:
    assert mcnemar_worse(lost, gained) == pytest.approx(p)


def test_it_is_half_of_the_two_sided_test_in_its_own_direction() -> None:
    for lost in range(1, 12):
        for gained in range(lost):
            assert 2 * mcnemar_worse(lost, gained) == pytest.approx(mcnemar_exact(lost, gained))
            assert mcnemar_worse(gained, lost) > 0.5


def test_unscored_problems_are_in_no_pair_and_are_counted() -> None:
    before = {"a": True, "b": True, "c": None, "d": False, "e": False}
    now = {"a": False, "b": None, "c": True, "d": True, "e": False}
    (change,) = changes({"set": (before, now)}, ALPHA).values()
    assert (change.n, change.lost, change.gained, change.excluded) == (3, 1, 1, 2)
    assert (change.before.k, change.now.k) == (1, 1) and not change.worse


def test_holm_holds_the_sets_together() -> None:
    drop = ({str(i): True for i in range(7)}, {str(i): False for i in range(7)})  # p = 1/128 by itself
    same = ({str(i): True for i in range(7)}, {str(i): True for i in range(7)})
    assert changes({"one": drop}, ALPHA)["one"].worse
    both = changes({"one": drop, "two": same}, ALPHA)
    assert both["one"].p == pytest.approx(1 / 128) and both["one"].p_holm == pytest.approx(1 / 64)
    assert not both["one"].worse and not both["two"].worse


def test_other_problems_are_refused() -> None:
    with pytest.raises(UsageError, match="not the same problems"):
        changes({"set": ({"a": True}, {"b": True})}, ALPHA)
    with pytest.raises(UsageError, match="no problem is scored both times"):
        changes({"set": ({"a": None}, {"a": True})}, ALPHA)


def answered(chances: list[float], rng: random.Random) -> dict[str, bool | None]:
    return {str(i): rng.random() < p for i, p in enumerate(chances)}


def lost_of(a: dict[str, bool | None], b: dict[str, bool | None]) -> int:
    return sum(bool(right) and not b[i] for i, right in a.items())


def flagged(seed: int, drop: float, nights: int = NIGHTS) -> int:
    """How many nights call a model worse: two sets of 120 problems, most of them settled, some by chance."""
    rng, found = random.Random(seed), 0
    for _ in range(nights):
        sets: dict[str, tuple[int, int]] = {}
        for name in ("one", "two"):
            chances = [rng.choice([0.99, 0.97, 0.02, 0.5, 0.7]) for _ in range(120)]
            now = [p * (1 - drop) for p in chances]
            before, after = answered(chances, rng), answered(now, rng)
            sets[name] = (lost_of(before, after), lost_of(after, before))
        found += any(worse for _, _, worse in judged(sets, ALPHA).values())
    return found


@pytest.fixture
def small_heap() -> Iterator[None]:
    """statsmodels collects garbage at every adjustment, which takes long in a process that has loaded much."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("small_heap")
def test_an_unchanged_model_is_called_worse_no_more_often_than_alpha_says() -> None:
    assert flagged(0, drop=0.0) <= binom.ppf(0.999, NIGHTS, ALPHA)


@pytest.mark.usefixtures("small_heap")
def test_a_model_that_loses_a_third_of_its_answers_is_seen() -> None:
    assert flagged(1, drop=0.33, nights=40) >= 38


def test_a_better_model_is_not_called_worse() -> None:
    before = {str(i): i % 2 == 0 for i in range(60)}
    assert not changes({"set": (before, dict.fromkeys(before, True))}, ALPHA)["set"].worse
