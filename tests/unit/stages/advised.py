"""A scripted pair: the trained writer tells the answer, and the solver repeats what it is told."""

import re

from reasoner.records import GenerationRequest
from tests.support.problem_rows import MATH

GOLDS = {question: answer for question, _, answer, _ in MATH[1:]}


def answer(request: GenerationRequest) -> str:
    question = re.search(r"Problem:\n(.*)", request.prompt)[1].strip()
    if "tutor" in request.prompt:
        return f"Box {GOLDS[question]}" if request.adapter == "feedback" else "Look again."
    told = re.search(r"Advice:\nBox (.*?)(?:<\|im_end|$)", request.prompt)
    return f"\\boxed{{{told[1]}}}" if told else "I don't know."
