"""ArCHer's losses and its replay; on a two-action toy Q learns R and the policy picks the better action."""

import pytest
import torch

from reasoner.errors import UsageError
from reasoner.methods.multiturn import archer
from tests.unit.methods.multiturn.making import episode

REWARD = torch.tensor([0.2, 0.8])


def test_a_single_turns_target_is_its_reward():
    target = archer.q_target(torch.tensor([0.0, 1.0]), torch.ones(2), torch.tensor([5.0, 5.0]), 0.95)
    assert target.tolist() == [0.0, 1.0]
    going_on = archer.q_target(torch.tensor([0.0]), torch.zeros(1), torch.tensor([2.0]), 0.95)
    assert going_on.tolist() == pytest.approx([1.9])


def test_targets_get_no_gradient():
    q, target = torch.zeros(2, 1, requires_grad=True), torch.ones(2, 1, requires_grad=True)
    (archer.q_loss(q, target) + archer.v_loss(q, target)).backward()
    assert target.grad is None and q.grad.tolist() == [[-4.0], [-4.0]]
    assert not archer.advantage(q, q).requires_grad


def test_the_advantage_takes_the_smaller_of_each_pair():
    q, v = torch.tensor([[3.0], [1.0]]), torch.tensor([[0.25], [0.5]])
    assert archer.advantage(q, v).tolist() == [0.75]


def test_polyak_moves_a_tenth_of_the_way():
    target, source = torch.zeros(3), torch.ones(3)
    archer.polyak([target], [source], 0.1)
    assert target.tolist() == pytest.approx([0.1] * 3)


def test_q_learns_the_reward_v_the_mean_and_the_policy_the_better_action():
    """Rewards are Bernoulli (0.2, 0.8): Q → R, V → E_π R (with the policy held), then the policy is let go."""
    draw = torch.Generator().manual_seed(0)
    q, v = torch.zeros(2, 2, requires_grad=True), torch.zeros(2, 1, requires_grad=True)
    q_bar, v_bar = torch.zeros(2, 2), torch.zeros(2, 1)
    policy = torch.zeros(2, requires_grad=True)
    critic, actor = torch.optim.Adam([q, v], 0.02), torch.optim.Adam([policy], 0.05)

    def critic_step() -> None:
        a = torch.randint(0, 2, (32,), generator=draw)
        fresh = torch.multinomial(policy.detach().softmax(-1), 32, True, generator=draw)
        reward = torch.bernoulli(REWARD[a], generator=draw)
        target = archer.q_target(reward, torch.ones(32), v_bar.expand(2, 32), 0.95)
        loss = archer.q_loss(q[:, a], target) + archer.v_loss(v.expand(2, 32), q_bar[:, fresh])
        critic.zero_grad()
        loss.backward()
        critic.step()
        archer.polyak([q_bar, v_bar], [q, v], 0.1)

    for _ in range(400):
        critic_step()
    torch.testing.assert_close(q.detach(), REWARD.expand(2, 2), rtol=0, atol=0.12)
    torch.testing.assert_close(v.detach(), torch.full((2, 1), 0.5), rtol=0, atol=0.08)
    for _ in range(100):
        critic_step()
        fresh = torch.multinomial(policy.detach().softmax(-1), 16, True, generator=draw)
        a = archer.advantage(q[:, fresh], v.expand(2, 16))
        loss = -(a * policy.log_softmax(-1)[fresh]).mean()
        actor.zero_grad()
        loss.backward()
        actor.step()
    assert float(policy.detach().softmax(-1)[1]) > 0.9


def test_the_buffer_keeps_the_newest_and_draws_the_same_for_the_same_seed():
    replay = archer.Replay(3)
    with pytest.raises(UsageError, match="empty"):
        replay.draw(1, 0)
    replay.add([episode(p, 0, r, None) for p, r in (("a", 0), ("b", 1), ("u", -1), ("c", 1), ("d", 0))])
    assert len(replay) == 3 and {e.problem_id for e in replay.draw(50, 1)} == {"b", "c", "d"}
    assert replay.draw(5, 7) == replay.draw(5, 7) != replay.draw(5, 8)
