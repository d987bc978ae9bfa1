"""RL-guided SCoRe's feedback credits."""

import pytest

from reasoner.errors import UsageError
from reasoner.methods.multiturn import rl_guided
from reasoner.methods.multiturn.advantages import leave_one_out, zero_variance_share
from tests.unit.methods.multiturn.making import episode

ROWS = [episode("p", 0, 0, 1), episode("p", 1, 0, 0), episode("q", 0, 1, 1, leak=True), episode("q", 1, 1, 1)]


def test_rewards_on_both_scales_and_the_leak_penalty():
    assert rl_guided.feedback_rewards(ROWS, "binary") == [1, 0, 1, 1]
    assert rl_guided.feedback_rewards(ROWS, "pm1", 0.5) == [1, -1, 0.5, 1]


def test_the_kl_goes_into_the_reward_or_into_the_loss():
    rewards = rl_guided.feedback_rewards(ROWS, "binary")
    inside = rl_guided.feedback_credits(ROWS, rewards, [2, 0, 0, 0], 0.05, in_loss=False)
    assert [c.advantage for c in inside] == pytest.approx([0.9, -0.9, 0, 0])
    assert {c.kl_coef for c in inside} == {0.0} and {c.turn.kind for c in inside} == {"feedback"}
    outside = rl_guided.feedback_credits(ROWS, rewards, [2, 0, 0, 0], 0.05, in_loss=True)
    assert [c.advantage for c in outside] == [1, -1, 0, 0] and {c.kl_coef for c in outside} == {0.05}


def test_an_episode_without_feedback_is_refused():
    bare = [episode("p", 0, 0, 1, guided=False)]
    with pytest.raises(UsageError, match="no feedback turn"):
        rl_guided.feedback_credits(bare, [1.0], [0.0], 0.05, False)


def test_a_lone_episode_of_a_group_has_no_advantage():
    assert leave_one_out([1.0, 0.0, 1.0], [[0], [1, 2]]) == [1.0, 1.0, 0.0]
    with pytest.raises(UsageError, match="2 members"):
        leave_one_out([1.0, 0.0, 1.0], [[0, 1]])


def test_zero_variance_groups():
    assert zero_variance_share([1, 1, 0, 1], [[0, 1], [2, 3]]) == 0.5
    assert zero_variance_share([], []) == 0.0
