"""Token losses of sampled turns, on tensors (METHODS 1.3.1): the clipped ratio and the differentiable KL.

    policy   -Σ_t min(ρ_t·A, clip(ρ_t, 1-ε_low, 1+ε_high)·A) / norm,   ρ_t = exp(log π - log π_sampler)
    KL k3     Σ_t (exp(Δ_t) - Δ_t - 1) / norm,                          Δ_t = log π_ref - log π
    KL k1     Σ_t (log π - log π_ref): the sequence's KL, a number for the reward

`norm` is a constant (max tokens, or 1), never the turn's own length. With one update a rollout ρ = 1 and the policy
term's gradient is REINFORCE's. The gradient of k3 in the loss is, in expectation over the policy's own samples, that
of KL(π_ref‖π); k1 in the reward gives that of KL(π‖π_ref).
"""

from typing import Any


def policy_loss(
    logp_BT: Any, sampled_BT: Any, mask_BT: Any, advantage_B: Any, *, clip_low: float, clip_high: float,
    norm: float,
) -> Any:  # fmt: skip
    """[B]: the clipped policy loss of each turn. `sampled_BT` are the sampler's log-probabilities."""
    import torch

    ratio_BT = ((logp_BT - sampled_BT) * mask_BT).exp()
    advantage_B1 = advantage_B.unsqueeze(-1)
    clipped_BT = ratio_BT.clamp(1.0 - clip_low, 1.0 + clip_high)
    token_BT = -torch.minimum(ratio_BT * advantage_B1, clipped_BT * advantage_B1)
    return (token_BT * mask_BT).sum(-1) / norm


def kl_loss(logp_BT: Any, reference_BT: Any, mask_BT: Any, *, norm: float) -> Any:
    """[B]: k3 of each turn, with a gradient through `logp_BT`."""
    delta_BT = (reference_BT - logp_BT) * mask_BT
    return ((delta_BT.exp() - delta_BT - 1.0) * mask_BT).sum(-1) / norm


def sequence_kl(logp_BT: Any, reference_BT: Any, mask_BT: Any) -> Any:
    """[B]: k1 of each turn, summed over its tokens."""
    return ((logp_BT - reference_BT) * mask_BT).sum(-1)


def clipped_share(logp_BT: Any, sampled_BT: Any, mask_BT: Any, clip_low: float, clip_high: float) -> Any:
    """Share of tokens whose ratio lies outside the clipping range."""
    ratio_BT = ((logp_BT - sampled_BT) * mask_BT).exp()
    outside_BT = ((ratio_BT < 1.0 - clip_low) | (ratio_BT > 1.0 + clip_high)) * mask_BT
    return outside_BT.sum() / mask_BT.sum().clamp(min=1)
