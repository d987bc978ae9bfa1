"""`reasoner infer` on a terminal: questions of a file as JSON Lines, or typed in one by one."""

import json
import sys

from reasoner.errors import EngineError
from reasoner.serving.infer import Inference, Inferred

BATCH = 64
"""Questions that are planned and worked on together."""


def answer_file(inference: Inference, questions: list[str]) -> None:
    """One JSON object a question, in order, as soon as its batch is done."""
    for start in range(0, len(questions), BATCH):
        for found in inference.answer(questions[start : start + BATCH]):
            print(json.dumps(found.to_row(), ensure_ascii=False), flush=True)


def answer_interactively(inference: Inference, as_json: bool) -> None:
    """Read questions from standard input until it ends; an empty line is skipped, `quit` ends."""
    prompt = "question> " if sys.stdin.isatty() else ""
    while True:
        try:
            question = input(prompt).strip()
        except EOFError:
            return
        if question.casefold() in ("quit", "exit"):
            return
        if not question:
            continue
        try:
            found = inference.answer([question])[0]
        except EngineError as error:  # the next question may do better
            print(f"reasoner: {error}", file=sys.stderr, flush=True)
            continue
        print(json.dumps(found.to_row(), ensure_ascii=False) if as_json else shown(found), flush=True)


def shown(found: Inferred) -> str:
    """One answer in words."""
    lines = []
    if not found.valid_plan:
        lines.append(f"no valid plan: {found.planner_output[:200]!r}")
    elif found.should_decompose:
        lines += [f"  {number}. {part}" for number, part in enumerate(found.subproblems, 1)]
    lines += [f"  [{call['role']}] {' '.join(str(call['text']).split())[:200]}" for call in found.calls]
    lines.append(f"answer: {found.answer if found.answer is not None else 'none'}")
    return "\n".join(lines)
