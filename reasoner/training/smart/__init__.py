"""GRPO training of SMART's policy, a program that runs as a child process with a JSON spec."""
