"""Short ways to write problems and attempts."""

from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.records import SolutionRecord
from reasoner.records import Outcome, Problem, Strategy, Verdict

COT, SUB, POT = Strategy.COT, Strategy.SUB, Strategy.POT
OUTCOMES = {"+": Outcome.CORRECT, "-": Outcome.INCORRECT, "?": Outcome.UNSCORED}


def problem(number: int = 0) -> Problem:
    return Problem.make(f"What is {number} + 1?", str(number + 1), "toy")


def attempt(
    owner: Problem,
    strategy: Strategy | None,
    mark: str,
    *,
    index: int = 0,
    tried: tuple[Strategy, ...] = (),
    finish: str = "stop",
    solution: str | None = None,
    extracted: str | None = None,
) -> Attempt:
    """`mark` is + (correct), - (incorrect) or ? (unscored)."""
    text = f"{strategy} {mark} {index} of {owner.question}" if solution is None else solution
    verdict = Verdict(OUTCOMES[mark], {"+": "equal", "-": "different", "?": "gold"}[mark], extracted)
    return Attempt(owner.id, strategy, 2 if tried else 1, tried, index, text, text, verdict, finish)


def few_shot(owner: Problem, marks: str, finishes: str = "...") -> list[Attempt]:
    """One attempt a strategy in the order chain, sub-questions, program; a blank mark leaves one out."""
    return [
        attempt(owner, strategy, mark, finish="stop" if end == "." else "length")
        for strategy, mark, end in zip(Strategy, marks, finishes, strict=True)
        if mark != " "
    ]


def samples(owner: Problem, *groups: tuple[Strategy | None, int, int], tried: tuple = ()) -> list[Attempt]:
    """Samples of one prompt from (strategy, number correct, number wrong); the wrong ones come first."""
    marks = [(s, mark) for s, right, wrong in groups for mark in "-" * wrong + "+" * right]
    return [attempt(owner, s, mark, index=i, tried=tried) for i, (s, mark) in enumerate(marks)]


def shapes(records: tuple[SolutionRecord, ...] | list[SolutionRecord]) -> list[tuple[str, str]]:
    """Records as (what was tried or `none`, strategy), sorted."""
    return sorted(("+".join(r.tried) or "none", str(r.strategy)) for r in records)
