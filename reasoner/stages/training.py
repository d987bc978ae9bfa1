"""Supervised fine-tuning of an adapter and its merge into the base, each in a child process."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasoner.config.smart import PromptConfig, TrainConfig
from reasoner.errors import TrainingError
from reasoner.methods.smart.records import SolutionRecord
from reasoner.prompts.chat import ChatRenderer
from reasoner.prompts.policy import PolicyPrompt
from reasoner.records import TrainingExample
from reasoner.store.rows import read_rows, write_rows
from reasoner.workbench import ModelFolder, Workbench


def examples(records: Sequence[SolutionRecord], prompt: PromptConfig, renderer: ChatRenderer) -> list[TrainingExample]:
    """Render records as the policy will see and write them."""
    policy = PolicyPrompt.load(prompt.template, prompt.refine_context)
    rendered = []
    for record in records:
        failed = list(zip(record.tried, record.tried_solutions, strict=True))
        text, _ = renderer.render(policy.messages(record.question, failed))
        completion = renderer.completion_text(policy.completion(record.strategy, record.solution))
        rendered.append(
            TrainingExample(record.problem_id, text, completion, str(record.strategy), record.kind,
                            tuple(str(s) for s in record.tried))
        )  # fmt: skip
    return rendered
