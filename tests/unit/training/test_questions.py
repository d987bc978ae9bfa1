"""Which questions a training is given. Wrong if the seed does not decide, or the order of the file does."""

from reasoner.training.grpo.questions import choose
from tests.unit.training.planner.planning import problems


def test_the_seed_alone_chooses() -> None:
    given = problems()
    first, other = choose(given, 3, 0), choose(given, 3, 1)
    assert len(first) == len(other) == 3
    assert {p.id for p in first} != {p.id for p in other}
    assert choose(given[::-1], 3, 0) == first
    assert choose(given, None, 0)[:3] == first
