"""SCoRe's rewards and credits: the table of METHODS 3.5, stage I at step 0, who is credited with what."""

import pytest

from reasoner.errors import UsageError
from reasoner.methods.multiturn import score
from reasoner.methods.multiturn.score import Coefficients
from tests.unit.methods.multiturn.making import episode

TEN = Coefficients(alpha=10, beta1=0.01, beta2=0.1)


@pytest.mark.parametrize(("r1", "r2", "wanted"), [(0, 1, 11), (1, 1, 1), (1, 0, -10), (0, 0, 0)])
def test_the_shaped_reward_of_turn_2(r1, r2, wanted):
    assert score.task_rewards(2, r1, r2, 10.0) == (r1, wanted)


def test_alpha_moves_turn_2_only():
    rows = [episode("p", 0, 0, 1), episode("p", 1, 1, 0)]
    flat = score.credits(rows, [0, 0], [0, 0], 2, Coefficients(0, 0, 0))
    steep = score.credits(rows, [0, 0], [0, 0], 2, Coefficients(10, 0, 0))
    first = [c.advantage for c in flat if c.turn.kind == "attempt"]
    assert first == [c.advantage for c in steep if c.turn.kind == "attempt"] == [-1, 1]
    assert [c.advantage for c in flat if c.turn.kind == "refinement"] == [1, -1]
    assert [c.advantage for c in steep if c.turn.kind == "refinement"] == [21, -21]


def test_stage_1_gives_turn_1_nothing_while_the_policy_is_the_reference():
    rows = [episode("p", i, r1, r2) for i, (r1, r2) in enumerate([(1, 0), (0, 1), (1, 1)])]
    zero, some = [0.0] * 3, [0.3, -0.1, 0.7]
    first = [c for c in score.credits(rows, zero, zero, 1, TEN) if c.turn.kind == "attempt"]
    assert [c.advantage for c in first] == [0.0, 0.0, 0.0]
    first = [c for c in score.credits(rows, some, zero, 1, TEN) if c.turn.kind == "attempt"]
    assert first[0].advantage == pytest.approx(-0.1 * (0.3 - (-0.1 + 0.7) / 2))


def test_turn_1_does_not_earn_turn_2s_reward():
    """γ = 0: with equal first turns the first turn's advantage is 0, whatever the second did."""
    rows = [episode("p", 0, 1, 1), episode("p", 1, 1, 0)]
    found = score.credits(rows, [0, 0], [0, 0], 2, TEN)
    assert [c.advantage for c in found if c.turn.kind == "attempt"] == [0, 0]


def test_kl_in_the_loss_leaves_the_reward():
    rows = [episode("p", 0, 1, 1), episode("p", 1, 0, 1)]
    found = score.credits(rows, [5.0, 0.0], [9.0, 0.0], 1, Coefficients(10, 0.01, 0.1, in_loss=True))
    assert [c.advantage for c in found] == [0, 0, 0, 0]
    assert [c.kl_coef for c in found] == [0.1, 0.1, 0.01, 0.01]


def test_the_baseline_is_the_mean_of_the_other_episodes_of_the_same_problem():
    rows = [episode("p", 0, 1, 1), episode("q", 0, 0, 0), episode("p", 1, 0, 0), episode("p", 2, 0, 0)]
    found = score.credits(rows, [0] * 4, [0] * 4, 2, Coefficients(0, 0, 0))
    assert [c.advantage for c in found[:4]] == [1.0, 0.0, -0.5, -0.5]


def test_an_episode_without_a_verdict_is_refused():
    with pytest.raises(UsageError, match="without a verdict"):
        score.credits([episode("p", 0, 1, -1)], [0], [0], 2, TEN)


def test_stages_follow_each_other():
    assert [score.stage_at(step, 2) for step in range(4)] == [1, 1, 2, 2]
