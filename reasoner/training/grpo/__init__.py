"""GRPO on the on-policy loop, for any method that gives prompts and a reward."""
