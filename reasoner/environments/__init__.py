"""Environments of multi-turn episodes: what a problem looks like, and what an answer is worth."""

from reasoner.environments.environment import Environment, open_environment

__all__ = ["Environment", "open_environment"]
