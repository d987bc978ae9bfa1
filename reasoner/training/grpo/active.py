"""TRL's GRPOTrainer, whose loss averages over the completions that have a reward (METHODS 1.3.1).

TRL 1.16 gives a completion without one (None) an advantage of 0 and still divides by its tokens, so that a step's
gradient would shrink with the share of its groups that are used. Here the other advantages grow by that share's
inverse: by tokens where the loss divides by tokens (`dapo`, and `bnpo`, whose micro-batches then share the step's
factor), by completions where it divides by those (`grpo`, `dr_grpo`). The KL of `beta`, which needs no reward, stays a
mean over all completions, and so does what TRL logs of rewards and lengths; entropy and clipped ratios are means over
the tokens that are computed (micro_batches.py). A group whose rewards are all alike moves nothing: in float32 the mean
of equal numbers is not always that number, and TRL divides what is left by 1e-4.
"""

from typing import Any

from reasoner.training.grpo.micro_batches import ANY_ORDER, cut, needed, regrouped, shares

BY_TOKENS = ("dapo", "bnpo")
MEANS = ("entropy", "kl", "clip_ratio/low_mean", "clip_ratio/high_mean", "clip_ratio/region_mean")
"""Means over tokens of each micro-batch, of which TRL logs the plain mean."""


def active_trainer() -> Any:
    """The subclass of GRPOTrainer, as a function since TRL is slow to import."""
    import torch
    from trl import GRPOTrainer

    trls: Any = GRPOTrainer

    class ActiveTrainer(trls):
        _buffered_inputs: Any
        _rewarded: Any
        """Whether each completion has a reward, of all processes in their order."""
        _alike: Any
        """Whether each completion's group has one reward only, likewise."""
        _shares: list[float]
        """What each micro-batch counts in a mean over the step; 1 on average."""

        def _calculate_rewards(self, *given: Any, **more: Any) -> Any:
            rewards = super()._calculate_rewards(*given, **more)
            self._rewarded = ~torch.isnan(rewards).all(dim=1)
            self._alike = alike(rewards, self.num_generations)
            return rewards

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            found = super()._generate_and_score_completions(inputs)
            tokens = self.accelerator.gather(found["completion_mask"].sum(1).float())
            weights = tokens if self.loss_type in BY_TOKENS else torch.ones_like(tokens)
            own = len(found["advantages"]) * self.accelerator.process_index
            idle = self._alike[own : own + len(found["advantages"])]
            advantages = found["advantages"].masked_fill(idle, 0.0)
            found["advantages"] = advantages * inverse_share(weights, self._rewarded)
            return found

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            before = self._buffered_inputs
            inputs = super()._prepare_inputs(generation_batch)
            if self._buffered_inputs is not before:
                self._regroup()
                inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
            return inputs

        def _regroup(self) -> None:
            batches, full = self._buffered_inputs, None
            if self.aux_loss_enabled:  # of the experts of a micro-batch, whose rows must stay together
                made = [cut(batch) for batch in batches]
            else:
                if not self.beta and self.loss_type in ANY_ORDER:
                    full = self._most(needed(batches))
                made = regrouped(batches, self.loss_type, full)
            tokens = self.accelerator.reduce(shares(made, full), "sum")
            self._shares = (tokens * len(made) / tokens.sum().clamp(min=1.0)).tolist()
            self._buffered_inputs = made

        def _most(self, count: int) -> int:
            """The largest count of all processes."""
            counts = torch.tensor([count], device=self.accelerator.device)
            return int(self.accelerator.gather(counts).max())

        def _compute_loss(self, model: Any, inputs: Any) -> Any:
            loss = super()._compute_loss(model, inputs)
            if self.model.training:
                share = self._shares[self._step % self.args.steps_per_generation]
                for name in MEANS:
                    if self._metrics["train"].get(name):
                        self._metrics["train"][name][-1] *= share
            return loss

    return ActiveTrainer


def alike(rewards: Any, size: int) -> Any:
    """Whether all rewards of its group are equal, for each completion. `rewards` is (completions, functions), with NaN
    for none; groups of `size` stand together."""
    import torch

    groups = torch.nan_to_num(rewards, nan=-torch.inf).view(-1, size, rewards.shape[1])
    return (groups.amax(1) == groups.amin(1)).all(1).repeat_interleave(size)


def inverse_share(weights: Any, active: Any) -> float:
    """All weights by those of the active; 1 where none is, whose advantages are all 0. Both are (completions,)."""
    counted = weights[active].sum()
    return float(weights.sum() / counted) if counted > 0 else 1.0
