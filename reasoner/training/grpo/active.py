"""TRL's GRPOTrainer, whose loss averages over the completions that have a reward (METHODS 1.3.1).

TRL 1.16 gives a completion without one (None) an advantage of 0 and still divides by its tokens, so that a step's
gradient would shrink with the share of its groups that are used. Here the other advantages grow by that share's
inverse: by tokens where the loss divides by tokens (`dapo`, and `bnpo`, whose micro-batches then share the step's
factor), by completions where it divides by those (`grpo`, `dr_grpo`). The KL of `beta`, which needs no reward, stays a
mean over all completions, and so does what TRL logs of rewards and lengths; entropy and clipped ratios are those of the
completions that are computed (micro_batches.py).
"""

from typing import Any

from reasoner.training.grpo.micro_batches import needed, regrouped

BY_TOKENS = ("dapo", "bnpo")


def active_trainer() -> Any:
    """The subclass of GRPOTrainer, as a function since TRL is slow to import."""
    import torch
    from trl import GRPOTrainer

    class ActiveTrainer(GRPOTrainer):
        _rewarded: Any
        """Whether each completion has a reward, of all processes in their order."""

        def _calculate_rewards(self, *given: Any, **more: Any) -> Any:
            rewards = super()._calculate_rewards(*given, **more)
            self._rewarded = ~torch.isnan(rewards).all(dim=1)
            return rewards

        def _generate_and_score_completions(self, inputs: Any) -> Any:
            found = super()._generate_and_score_completions(inputs)
            tokens = self.accelerator.gather(found["completion_mask"].sum(1).float())
            weights = tokens if self.loss_type in BY_TOKENS else torch.ones_like(tokens)
            found["advantages"] = found["advantages"] * inverse_share(weights, self._rewarded)
            return found

        def _prepare_inputs(self, generation_batch: Any) -> Any:
            before = self._buffered_inputs
            inputs = super()._prepare_inputs(generation_batch)
            if self._buffered_inputs is not before:
                everything = bool(self.beta) or self.aux_loss_enabled
                full = None if everything else self._most(needed(self._buffered_inputs))
                self._buffered_inputs = regrouped(self._buffered_inputs, self.loss_type, full)
                inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
            return inputs

        def _most(self, count: int) -> int:
            """The largest count of all processes."""
            counts = torch.tensor([count], device=self.accelerator.device)
            return int(self.accelerator.gather(counts).max())

    return ActiveTrainer


def inverse_share(weights: Any, active: Any) -> float:
    """All weights by those of the active; 1 where none is, whose advantages are all 0. Both are (completions,)."""
    counted = weights[active].sum()
    return float(weights.sum() / counted) if counted > 0 else 1.0
