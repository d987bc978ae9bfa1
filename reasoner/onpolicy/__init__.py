"""The on-policy loop: one engine, one copy of the base, the policy's adapter sent after each step.

`sampler` gives the engine the current adapter and brings back tokens with log-probabilities; `logprobs` computes the
trainer's own in chunks; `gate` compares the two; `parts` times a step; `memory` halves micro-batches; `trl_rollout` is
the hook for TRL's GRPOTrainer. `opening`, `served` and `server` start engines here or talk to one over HTTP. Objectives
and optimiser loops live with their methods.
"""
