"""Token losses against finite differences and exact enumeration on toy policies."""

import itertools

import torch

from reasoner.methods.multiturn import losses

ONE = torch.ones(1, 1, dtype=torch.float64)


def logits(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def finite_difference(f, x: torch.Tensor, step: float = 1e-6) -> torch.Tensor:
    grad = torch.zeros_like(x)
    for index in itertools.product(*map(range, x.shape)):
        up, down = x.detach().clone(), x.detach().clone()
        up[index] += step
        down[index] -= step
        grad[index] = (f(up) - f(down)) / (2 * step)
    return grad


def test_the_kl_in_the_loss_has_the_gradient_of_its_finite_differences():
    reference, tokens = logits(1, 2, 3, 5).log_softmax(-1), torch.tensor([[0, 4, 2], [3, 1, 1]])
    mask = torch.tensor([[1.0, 1, 1], [1, 1, 0]], dtype=torch.float64)

    def value(x: torch.Tensor) -> torch.Tensor:
        picked = [a.gather(-1, tokens[..., None])[..., 0] for a in (x.log_softmax(-1), reference)]
        return losses.kl_loss(*picked, mask, norm=4.0).sum()

    x = logits(2, 2, 3, 5).requires_grad_()
    (grad,) = torch.autograd.grad(value(x), x)
    torch.testing.assert_close(grad, finite_difference(value, x), rtol=0, atol=1e-8)
    assert float(grad[1, 2].abs().max()) == 0.0, "a masked token teaches nothing"
    assert float(grad.abs().max()) > 1e-3


def test_the_policy_loss_has_the_gradient_of_its_finite_differences_inside_and_outside_the_clip():
    tokens, mask = torch.tensor([[0, 2, 1]]), torch.ones(1, 3, dtype=torch.float64)
    x = logits(3, 1, 3, 3)
    sampled = x.log_softmax(-1).gather(-1, tokens[..., None])[..., 0] + torch.tensor([[0.0, 0.5, -0.5]])
    for advantage in (1.3, -0.8):

        def value(x: torch.Tensor, advantage: float = advantage) -> torch.Tensor:
            logp = x.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
            a = torch.tensor([advantage], dtype=torch.float64)
            return losses.policy_loss(logp, sampled, mask, a, clip_low=0.2, clip_high=0.2, norm=3.0).sum()

        moved = x.clone().requires_grad_()
        (grad,) = torch.autograd.grad(value(moved), moved)
        torch.testing.assert_close(grad, finite_difference(value, x), rtol=0, atol=1e-8)
        # Ratios are 1, e^-0.5 and e^0.5: the clip stops the one that has gone too far in the advantage's direction.
        stopped = 2 if advantage > 0 else 1
        assert float(grad[0, stopped].abs().max()) == 0.0
        assert float(grad[0, 3 - stopped].abs().max()) > 1e-3


def test_with_one_update_a_rollout_the_gradient_is_reinforces():
    x = logits(4, 2, 1, 4).requires_grad_()
    tokens, advantage = torch.tensor([[1], [3]]), torch.tensor([2.0, -1.0], dtype=torch.float64)
    logp = x.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    mask = torch.ones(2, 1, dtype=torch.float64)
    clipped = losses.policy_loss(logp, logp.detach(), mask, advantage, clip_low=0.2, clip_high=0.2, norm=1.0)
    (a,) = torch.autograd.grad(clipped.sum(), x, retain_graph=True)
    (b,) = torch.autograd.grad(-(advantage * logp[:, 0]).sum(), x)
    torch.testing.assert_close(a, b, rtol=0, atol=1e-14)


def test_which_kl_each_estimator_descends():
    """By enumeration over the policy's own samples: k1 in the reward is ∇KL(π‖ref), k3 in the loss ∇KL(ref‖π)."""
    x, reference = logits(5, 4).requires_grad_(), logits(6, 4).log_softmax(-1)
    p = x.log_softmax(-1)
    in_reward, in_loss = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for token in range(4):
        logp, ref = p[token].reshape(1, 1), reference[token].reshape(1, 1)
        chance = float(p[token].detach().exp())
        k1 = float(losses.sequence_kl(logp.detach(), ref, ONE))
        (score,) = torch.autograd.grad(p[token], x, retain_graph=True)
        (k3,) = torch.autograd.grad(losses.kl_loss(logp, ref, ONE, norm=1.0).sum(), x, retain_graph=True)
        in_reward += chance * k1 * score
        in_loss += chance * k3
    (reverse,) = torch.autograd.grad((p.exp() * (p - reference)).sum(), x, retain_graph=True)
    (forward,) = torch.autograd.grad((reference.exp() * (reference - p)).sum(), x)
    torch.testing.assert_close(in_reward, reverse, rtol=0, atol=1e-13)
    torch.testing.assert_close(in_loss, forward, rtol=0, atol=1e-13)


def test_a_two_token_bandit_learns_the_rewarded_token_within_200_steps():
    """The sign test of METHODS 3.12 through the loss itself."""
    for rewarded in (0, 1):
        x = torch.zeros(2, dtype=torch.float64, requires_grad=True)
        optimiser = torch.optim.Adam([x], 0.05)
        draw = torch.Generator().manual_seed(rewarded)
        for _ in range(200):
            tokens = torch.multinomial(x.detach().softmax(-1), 4, True, generator=draw)
            reward = (tokens == rewarded).double()
            advantage = reward - (reward.sum() - reward) / 3
            logp = x.log_softmax(-1)[tokens].unsqueeze(-1)
            mask = torch.ones(4, 1, dtype=torch.float64)
            loss = losses.policy_loss(
                logp, logp.detach(), mask, advantage, clip_low=0.2, clip_high=0.2, norm=1.0
            )
            optimiser.zero_grad()
            loss.mean().backward()
            optimiser.step()
        assert float(x.detach().softmax(-1)[rewarded]) > 0.9


def test_the_share_of_clipped_tokens():
    logp, sampled = torch.tensor([[0.0, 0.5, -0.5]]), torch.zeros(1, 3)
    mask = torch.tensor([[1.0, 1.0, 0.0]])
    assert float(losses.clipped_share(logp, sampled, mask, 0.2, 0.2)) == 0.5
