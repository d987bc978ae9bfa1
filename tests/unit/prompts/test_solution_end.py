"""A few-shot continuation is cut where its solution ends."""

import pytest

from reasoner.prompts import load_exemplars
from reasoner.prompts.solution_end import STOPS, whole_solution
from reasoner.records import Strategy

COT, SUB, POT = Strategy.COT, Strategy.SUB, Strategy.POT
PROGRAM = "\n```python\na = 2\n\nanswer = a * 3\n```"


@pytest.mark.parametrize(
    ("strategy", "text", "finish", "solution", "whole"),
    [
        (COT, " 2 and 3. The answer is 5. Let's check: 7", "length", " 2 and 3. The answer is 5.", True),
        (
            COT,
            " It is 5.\nThe answer is $1,234.50.\nThe answer is 9.",
            "length",
            " It is 5.\nThe answer is $1,234.50.",
            True,
        ),
        (COT, " The answer is 3/4 of it", "stop", " The answer is 3/4", True),
        (COT, " The answer is −7", "stop", " The answer is −7", True),
        (COT, " and so on and on", "length", " and so on and on", False),
        (COT, " It makes 5.", "stop", " It makes 5.", True),
        (SUB, " 1. What? 4\nThe answer is 4.\n1. What? 5", "length", " 1. What? 4\nThe answer is 4.", True),
        (POT, PROGRAM + "\nThis prints 6", "length", PROGRAM, True),
        (POT, PROGRAM.removesuffix("\n```"), "stop", PROGRAM, True),
        (POT, PROGRAM.removesuffix("\n```"), "length", PROGRAM.removesuffix("\n```"), False),
        (POT, " answer = 3", "stop", " answer = 3", True),
    ],
)
def test_cut(strategy: Strategy, text: str, finish: str, solution: str, whole: bool) -> None:
    assert whole_solution(strategy, text, finish) == (solution, whole)


@pytest.mark.parametrize("name", ["gsm", "demo"])
@pytest.mark.parametrize("strategy", list(Strategy))
def test_every_exemplar_ends_where_we_say_and_holds_no_stop_string(name: str, strategy: Strategy) -> None:
    for exemplar in load_exemplars(name).exemplars:
        solution = exemplar.solution(strategy) or ""
        run_on = solution + "\nThe answer is 99."
        assert whole_solution(strategy, run_on, "length") == (solution, True)
        assert not any(stop in solution for stop in STOPS[strategy])
