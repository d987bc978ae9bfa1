"""A scripted model for the generated word problems: it knows every answer and errs on purpose, the same way each time.

It reads the prompt as a model would: the last `Problem:` of a few-shot prompt, whose exemplars show the strategy, or a
policy's turn, where it chooses a strategy and does not choose one that was tried.
"""

import functools
import re

from reasoner.ids import derived_seed
from reasoner.problems.word_problems import generate
from reasoner.records import GenerationRequest, Problem, Strategy

RIGHT_IN_TEN = {Strategy.COT: 5, Strategy.SUB: 4, Strategy.POT: 7}


@functools.cache
def known(count: int = 400, seed: int = 0) -> dict[str, Problem]:
    return {p.question: p for p in generate(count, seed)}


def solve(request: GenerationRequest) -> str:
    """The answer to a prompt of this project's own templates."""
    question = re.findall(r"Problem: (.*)", request.prompt)[-1]
    problem = known()[question.strip()]
    if "Strategies already tried" not in request.prompt:
        return f"\n{write(problem, shown(request.prompt), request.index)}"
    forced = next((s for s in Strategy if request.prompt.endswith(f"{s.title}:")), None)
    if forced is not None:
        return f" {write(problem, forced, request.index)}"
    strategy = chosen(request, problem)
    if request.sampling.choices:
        return f"{strategy.title}:"
    return f"{strategy.title}: {write(problem, strategy, request.index)}"


def forgetful(request: GenerationRequest) -> str:
    """Like `solve`, but the policy names no strategy."""
    return solve(request).split(": ", 1)[-1]


def stubborn(request: GenerationRequest) -> str:
    """Like `solve`, but a policy that always picks the program, also where it has failed, unless it may not."""
    if "Strategies already tried" not in request.prompt or request.sampling.choices:
        return solve(request)
    if any(request.prompt.endswith(f"{s.title}:") for s in Strategy):
        return solve(request)
    question = re.findall(r"Problem: (.*)", request.prompt)[-1]
    return f"{Strategy.POT.title}: {write(known()[question.strip()], Strategy.POT, request.index)}"


def hopeless(request: GenerationRequest) -> str:
    """Never right, in any strategy."""
    return "The answer is -1."


def shown(prompt: str) -> Strategy:
    """The strategy of the exemplars."""
    if "```python" in prompt:
        return Strategy.POT
    return Strategy.SUB if re.search(r"^1\. ", prompt, re.MULTILINE) else Strategy.COT


def chosen(request: GenerationRequest, problem: Problem) -> Strategy:
    tried = request.prompt.rsplit("Strategies already tried", 1)[-1]
    left = [s for s in Strategy if s.title not in tried]
    return left[derived_seed("choice", problem.id, request.index, request.seed) % len(left)]


def write(problem: Problem, strategy: Strategy, index: int) -> str:
    right = derived_seed("right", problem.id, strategy.value, index) % 10 < RIGHT_IN_TEN[strategy]
    answer = int(problem.gold) if right else int(problem.gold) + 1
    expression = problem.tags["program"] if right else f"answer = {answer}"
    if strategy is Strategy.POT:
        return f"```python\n{expression}\n```"
    if strategy is Strategy.SUB:
        return f"1. What is asked? {answer}\nThe answer is {answer}."
    return f"It comes to {answer}. The answer is {answer}."
