"""The on-policy loop: one engine, one copy of the base, an adapter that changes every step.

Covers sampling from the current policy beside its frozen base, the check that sampler and trainer agree, our own
optimiser loop and the hook for TRL's. Does not cover what is sampled, verified or rewarded: that is a method's.
See docs/design/003-onpolicy.md.
"""
