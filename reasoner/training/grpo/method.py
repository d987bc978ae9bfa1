"""What a method adds to GRPO: its prompts, its reward, and what it writes down."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reasoner.records import Problem
from reasoner.training.grpo.questions import Questions
from reasoner.training.grpo.sampling import Sampling

OnStep = Callable[[dict[str, Any]], None]
"""Takes what a reward found of a step: `step`, `metrics`, and `rows`, one a completion."""


@dataclass(frozen=True)
class Method:
    """One method's part of a training."""

    name: str
    """Stands before the names of its numbers in metrics.jsonl, such as `planner/reward`."""
    render: Callable[[Problem], tuple[str, bool]]
    """A problem's prompt, and whether tokenizing adds special tokens."""
    reward: Callable[[Sampling, OnStep], Any]
    """Makes the reward function that TRL calls once a step, after sampling."""
    curves: tuple[str, ...]
    """Which numbers training.json shows: its own, else the trainer's."""
    prompts: Any
    """The content of the prompts, for the identity of a work folder."""
    settings: tuple[Any, ...]
    """Whatever else of the method decides the adapter."""
    completions: str
    """What completions are called when a training is announced."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """What training.json says of the method."""
    finish: Callable[[Questions], None] = lambda questions: None
    """Writes further files into the finished adapter's folder."""
