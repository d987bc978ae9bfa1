"""GRPO training of the planner, a program that runs as a child process with a JSON spec."""
