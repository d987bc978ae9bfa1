"""SMART (arXiv 2410.16128): a policy names a strategy, solves with it, and learns from its own successes.

Covers parsing, the records of epoch 1 and of later epochs, controls, the analysis of few-shot attempts, and
evaluation. Does not render prompts, call a model or verify an answer.
"""
