"""Episodes: one problem at every turn, rewards only where there is a verdict, rows that come back whole."""

import json

import pytest

from reasoner.errors import DataError
from reasoner.methods.multiturn.episode import Episode, Judged, Kind, groups
from reasoner.records import Outcome, Verdict
from tests.unit.methods.multiturn.making import episode, turn


def test_a_turn_of_another_problem_is_refused():
    with pytest.raises(DataError, match="episode of problem a holds a refinement of problem b"):
        Episode("a", 0, turn(Kind.ATTEMPT, "a", 1), None, turn(Kind.REFINEMENT, "b", 1))


def test_an_unscored_verdict_is_no_reward():
    assert episode("p", 0, 1, 0).r2 == 0.0
    unscored = episode("p", 0, 1, -1)
    assert unscored.r2 is None and not unscored.scored and episode("p", 0, 0, 1).scored
    assert episode("p", 0, 0, None).scored, "a single turn is whole"


def test_rows_come_back_as_they_were():
    for given in (
        episode("p", 3, 1, 0, leak=True),
        episode("p", 0, 0, None),
        episode("p", 1, 0, 1, guided=False),
    ):
        assert Episode.from_row(json.loads(json.dumps(given.to_row()))) == given


def test_groups_keep_their_order_when_shuffled():
    rows = [episode(p, 0, 0, 0) for p in "abab"]
    assert groups(rows) == [[0, 2], [1, 3]]


def test_the_writers_are_two_adapters():
    assert [kind.policy for kind in Kind] == ["solver", "feedback", "solver"]


def test_how_long_a_verdict_took_is_no_part_of_an_episode():
    """Or a run that was killed could never end with the bytes of one that was not."""
    slow, fast = (Judged(Verdict(Outcome.CORRECT, "equal", "4", seconds)) for seconds in (0.9, 0.1))
    assert slow == fast and slow.to_row() == fast.to_row()
