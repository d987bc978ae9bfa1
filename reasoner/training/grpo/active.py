"""TRL's GRPOTrainer, whose loss averages over the completions that have a reward (METHODS 1.3.1).

TRL 1.16 gives a completion without one (None) an advantage of 0 and still divides by its tokens, so that a step's
gradient would shrink with the share of its groups that are used. Here the other advantages grow by that share's
inverse: by tokens where the loss divides by tokens (`dapo`, and `bnpo`, whose micro-batches then share the step's
factor), by completions where it divides by those (`grpo`, `dr_grpo`). All that TRL logs, and the KL of `beta`, which
needs no reward, stay means over all completions.
"""

from typing import Any

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

    return ActiveTrainer


def inverse_share(weights: Any, active: Any) -> float:
    """All weights by those of the active; 1 where none is, whose advantages are all 0. Both are (completions,)."""
    counted = weights[active].sum()
    return float(weights.sum() / counted) if counted > 0 else 1.0
