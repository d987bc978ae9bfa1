"""The planner behind an OpenAI-compatible server: starting it, and asking it."""
