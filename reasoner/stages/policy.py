"""What a policy is asked: the prompts of both turns, for its own training data and for evaluation.

A second turn is told which strategies were tried. Who picks the strategy of a response is `AskConfig.choice`; what is
picked depends on the seed and the question alone, never on the gold.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reasoner.config.smart import AskConfig, Epoch2Config, PromptConfig
from reasoner.ids import derived_seed
from reasoner.methods.smart import epoch2
from reasoner.methods.smart.attempts import Attempt, one_each
from reasoner.methods.smart.records import NO_SOLUTION
from reasoner.prompts import Attempt as Failed
from reasoner.prompts import ChatRenderer, load_template
from reasoner.prompts.chat import Rendered
from reasoner.prompts.policy import PolicyTemplate
from reasoner.records import Problem, Strategy
from reasoner.stages.generation import Ask, generate
from reasoner.workbench import ModelFolder, Workbench

Turns = Mapping[str, Sequence[tuple[Failed, ...]]]
"""Second turns by problem id: each is what its prompt names as tried, possibly nothing."""


def sample(
    out: Path, bench: Workbench, pool: Sequence[Problem], turn1: Sequence[Attempt] | None, model: ModelFolder,
    how: AskConfig, config: Epoch2Config, seed: int, epoch: int,
) -> dict[str, Any]:  # fmt: skip
    """A policy's own samples (METHODS 2.7): first turns, or with `turn1` second ones where a strategy failed."""
    turns, counts = (None, {}) if turn1 is None else _failed(pool, turn1, config, seed, epoch)
    made = _generate(out, bench, asks(pool, turns, how, model.path, seed + epoch), model, how, seed + epoch)
    return made if turns is None else {"queue": counts} | made


def answer(
    out: Path, bench: Workbench, problems: Sequence[Problem], turn1: Sequence[Attempt] | None, model: ModelFolder,
    how: AskConfig, seed: int,
) -> dict[str, Any]:  # fmt: skip
    """A policy's answers at evaluation (METHODS 2.8): first turns, or with `turn1` a second one for every question.

    No second turn looks at the gold: right and wrong first answers are asked again alike, told what was tried; after
    a response that named no strategy nothing is named.
    """
    turns = None if turn1 is None else {i: [_used(a)] for i, a in one_each(turn1, "turn 1").items()}
    return _generate(out, bench, asks(problems, turns, how, model.path, seed), model, how, seed)


def asks(
    problems: Sequence[Problem], turns: Turns | None, how: AskConfig, model: Path, seed: int
) -> list[Ask]:
    """The prompts: turn 1 of every problem, or every turn 2 in `turns`."""
    template, renderer = load_template(how.prompt.template), ChatRenderer(model)
    made = []
    for problem in problems:
        for tried in [()] if turns is None else turns.get(problem.id, ()):
            text, special = turn(problem, template, renderer, how.prompt, tried)
            names = tuple(t.strategy for t in tried)
            forced, allowed = _picked(problem, names, how, seed)
            ask = Ask(
                problem, text, special, turn=1 if turns is None else 2, tried=tuple(map(str, names)),
                tried_solutions=tuple(t.solution for t in tried), forced=forced, allowed=allowed,
            )  # fmt: skip
            made.append(ask)
    return made


def turn(
    problem: Problem, template: PolicyTemplate, renderer: ChatRenderer, prompt: PromptConfig,
    tried: Sequence[Failed] = (),
) -> Rendered:  # fmt: skip
    """One turn's prompt: the first, or with `tried` a second one."""
    return renderer.render(template.messages(problem.question, tried, prompt.refine_context))


def _picked(
    problem: Problem, tried: tuple[Strategy, ...], how: AskConfig, seed: int
) -> tuple[tuple[Strategy, ...], tuple[Strategy, ...]]:
    """What responses are forced to begin with, and what the model may pick from; see `Choice`."""
    left = tuple(s for s in how.strategies if s not in tried)
    if how.choice == "policy" or not left:
        return (), ()
    if how.choice == "untried":
        return (), left
    if how.choice == "random":
        key = ("random strategy", seed, problem.id, *tried)
        left = tuple(sorted(left, key=lambda strategy: derived_seed(*key, strategy)))
    return left, ()


def _failed(
    pool: Sequence[Problem], turn1: Sequence[Attempt], config: Epoch2Config, seed: int, epoch: int
) -> tuple[Turns, dict[str, int]]:
    """The second turns that the first asks for, and the counts."""
    queue, counts = epoch2.turn2_queue(pool, turn1, config, seed, epoch=epoch)
    turns: dict[str, list[tuple[Failed, ...]]] = {}
    for turn in queue:
        pairs = zip(turn.tried, turn.tried_solutions, strict=True)
        turns.setdefault(turn.problem_id, []).append(tuple(Failed(*pair) for pair in pairs))
    return turns, counts


def _used(attempt: Attempt) -> tuple[Failed, ...]:
    if attempt.strategy is None:
        return ()
    return (Failed(attempt.strategy, attempt.solution.strip() or NO_SOLUTION),)


def _generate(
    out: Path, bench: Workbench, prompts: Sequence[Ask], model: ModelFolder, how: AskConfig, seed: int
) -> dict[str, Any]:
    return generate(out, bench, prompts, model, how.engine, how.decoding, how.samples, seed)
