"""Reasoner trains language models to reason and shows how it knows that they got better.

This package knows nothing of Prefect: `tasks` makes Prefect tasks of it and `flows` makes flows of those.
Importing it loads neither torch nor vllm, trl or peft.
"""

__version__ = "0.1.0"
