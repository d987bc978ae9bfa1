"""One rollout's update of one adapter: micro-batches of credited turns, an optimiser step for each batch of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.methods.multiturn import losses
from reasoner.methods.multiturn.advantages import Credit
from reasoner.methods.multiturn.episode import FEEDBACK
from reasoner.onpolicy.memory import MicroBatches
from reasoner.onpolicy.parts import Part, Parts
from reasoner.training.multiturn.batching import longest_first, steps
from reasoner.training.multiturn.optimiser import Optimiser, norm_metrics
from reasoner.training.multiturn.policy import Policy
from reasoner.training.multiturn.scoring import Key, Processes, padded

Extra = Callable[[Sequence[int], float, Any], None]
"""Called after a micro-batch's own backward pass with its episodes' rows, the weight of one row, and each turn's
log-probability [B] without gradient; may add gradients."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a policy is updated."""

    temperature: float
    clip_low: float
    clip_high: float
    norm: float
    """Tokens that a turn's losses are divided by, a constant."""
    step_size: int | None
    """Turns an optimiser step; None takes the whole rollout."""


def settings_of(config: MultiTurnConfig, adapter: str) -> Settings:
    """How an adapter is updated under a configuration."""
    longest = config.guidance_max_tokens if adapter == FEEDBACK else config.max_tokens
    step = config.grad_accum_steps
    return Settings(
        config.temperature, config.clip_low, config.clip_high,
        float(longest) if config.token_normalisation == "max_tokens" else 1.0,
        step * config.batch_size if step is not None else None,
    )  # fmt: skip


def update(
    policy: Policy,
    adapter: str,
    optimiser: Optimiser,
    credits: Sequence[Credit],
    references: Mapping[Key, Any],
    settings: Settings,
    processes: Processes,
    micro: MicroBatches,
    *,
    iteration: int,
    seed: int,
    extra: Extra | None = None,
    beside: Sequence[int] | None = None,
    after_step: Callable[[], None] | None = None,
    reset: Callable[[], None] | None = None,
    parts: Parts | None = None,
) -> dict[str, float]:
    """Descend mean_episodes[ Σ_turns (policy loss + kl_coef · k3) ]; returns metrics by name.

    `extra` computes `beside[i]` tokens for a turn of episode i. For parts that it gives gradients: `after_step` runs
    after each optimiser step, `reset` forgets all gradients where one is begun anew because memory ran out.
    """
    kept = [c for c in credits if c.turn.token_ids]
    if not kept:
        return {}
    episodes = len({c.episode for c in kept})
    lengths = [len(c.turn.prompt_ids) + len(c.turn.token_ids) for c in kept]
    if beside is not None:
        # The turn's graph is gone when `extra` makes its own, so the longer of the two counts.
        lengths = [max(length, beside[c.episode]) for length, c in zip(lengths, kept, strict=True)]
    parts = parts or Parts()
    norms: list[float | None] = []
    sums = [0.0, 0.0, 0.0]  # loss, clipped tokens, tokens
    optimiser.zero()
    for rows in steps(len(kept), settings.step_size, seed):
        # Each row keeps its share of the mean over episodes; a step of a part of them is scaled to the whole.
        weight = len(kept) / len(rows) / episodes
        own = longest_first([i for i in rows if processes.owns(kept[i].episode)], lengths)

        def backward(piece: Sequence[int], _: float, weight: float = weight) -> tuple[float, float, float]:
            batch = [kept[i] for i in piece]
            *found, logp = _backward(policy, adapter, batch, references, settings, weight)
            if extra is not None:
                extra([c.episode for c in batch], weight, logp)
            loss, clipped, tokens = found
            return loss, clipped, tokens

        with parts.part(Part.FORWARD_BACKWARD):
            found = micro.accumulate(own, lengths, backward, reset or optimiser.zero)
        for loss, clipped, tokens in found:
            sums = [sums[0] + loss * len(rows) / len(kept), sums[1] + clipped, sums[2] + tokens]
        with parts.part(Part.OPTIMISER):
            norms.append(optimiser.step(iteration))
            if after_step is not None:
                after_step()
    loss, clipped, tokens = processes.numbers(sums)
    shares = {f"{adapter}_loss": loss, f"{adapter}_clipped": clipped / max(tokens, 1.0)}
    return shares | norm_metrics(adapter, norms)


def _backward(
    policy: Policy, adapter: str, batch: Sequence[Credit], references: Mapping[Key, Any], settings: Settings,
    weight: float,
) -> tuple[float, float, float, Any]:  # fmt: skip
    """The gradient of one micro-batch; returns its loss, clipped tokens, tokens, and log-probabilities a turn [B]."""
    import torch

    device = policy.device
    pairs = [(c.turn.prompt_ids, c.turn.token_ids) for c in batch]
    with policy.speaking(adapter, train=True):
        scores = policy.logprobs(pairs, settings.temperature)
        sampled = padded([c.turn.logprobs for c in batch], scores.mask)
        advantage = torch.tensor([c.advantage for c in batch], device=device)
        losses_B = losses.policy_loss(
            scores.logp, sampled, scores.mask, advantage, clip_low=settings.clip_low, clip_high=settings.clip_high,
            norm=settings.norm,
        )  # fmt: skip
        if any(c.kl_coef for c in batch):
            reference = padded([references[c.episode, c.turn.kind] for c in batch], scores.mask)
            coefficient = torch.tensor([c.kl_coef for c in batch], device=device)
            losses_B = losses_B + coefficient * losses.kl_loss(
                scores.logp, reference, scores.mask, norm=settings.norm
            )
        loss = losses_B.sum() * weight
        loss.backward()
    logp = scores.logp.detach()
    clipped = losses.clipped_share(logp, sampled, scores.mask, settings.clip_low, settings.clip_high)
    tokens = float(scores.mask.sum())
    return float(loss.detach()), float(clipped) * tokens, tokens, (logp * scores.mask).sum(-1)
