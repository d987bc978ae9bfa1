"""Prompts: few-shot and policy texts from data with content hashes, and chat rendering."""

from reasoner.prompts.chat import ChatRenderer, Rendered
from reasoner.prompts.few_shot import ExemplarSet, few_shot_prompt, few_shot_turns, load_exemplars
from reasoner.prompts.policy import Attempt, PolicyTemplate, completion, load_template

__all__ = [
    "Attempt",
    "ChatRenderer",
    "ExemplarSet",
    "PolicyTemplate",
    "Rendered",
    "completion",
    "few_shot_prompt",
    "few_shot_turns",
    "load_exemplars",
    "load_template",
]
