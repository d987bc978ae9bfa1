"""Verdicts on worked solutions.

Wrong if the model's failure is unscored, a failed sandbox or unreadable gold is incorrect, or order is lost.
"""

from collections.abc import Sequence

import pytest

from reasoner.errors import InfrastructureError
from reasoner.records import Outcome, Strategy
from reasoner.sandbox import Status
from reasoner.verifiers.solutions import PROGRAM_FAILURES, Answer, Ran, program_of, verify_solutions

COT, SUB, POT = Strategy.COT, Strategy.SUB, Strategy.POT
PROGRAM = "```python\nanswer = 18\n```"


def runner(*results: Ran):  # type: ignore[no-untyped-def]
    def run(programs: Sequence[str], workers: int | None, timeout: float) -> Sequence[Ran]:
        return results

    return run


def no_programs(programs: Sequence[str], workers: int | None, timeout: float) -> Sequence[Ran]:
    raise AssertionError("no program should run")


@pytest.mark.parametrize(
    ("answer", "outcome", "reason", "extracted"),
    [
        (Answer(COT, "16 - 3 - 4 = 9, 9 * 2 = 18. The answer is 18.", "18"), "correct", "equal", "18"),
        (Answer(COT, "Chain of Thought: The answer is $1,018.50.", "1018.5"), "correct", "equal", "1018.5"),
        (Answer(SUB, "1. How many? 9.\n2. How much? 18.\nThe answer is 18.", "18"), "correct", "equal", "18"),
        (Answer(SUB, "The answer is 17.", "18"), "incorrect", "wrong", "17"),
        (Answer(COT, "The answer is 0.", "0"), "correct", "equal", "0"),
        (Answer(COT, "I do not know.", "0"), "incorrect", "unparsed", None),
        (Answer(COT, "", "0"), "incorrect", "unparsed", None),
        (Answer(COT, "The answer is 18.", "a dozen and a half"), "unscored", "gold_unreadable", None),
        (Answer(COT, "The answer is 18.", ""), "unscored", "gold_unreadable", None),
        (Answer(POT, PROGRAM, ""), "unscored", "gold_unreadable", None),
        (Answer(POT, "The answer is 18.", "18"), "incorrect", "unparsed", None),
    ],
)
def test_without_a_program(answer: Answer, outcome: str, reason: str, extracted: str | None) -> None:
    (verdict,) = verify_solutions([answer], run=no_programs)
    assert (verdict.outcome, verdict.reason, verdict.extracted) == (outcome, reason, extracted)


@pytest.mark.parametrize(
    ("ran", "outcome", "reason", "extracted"),
    [
        (Ran("ok", "18.0", 0.5), "correct", "equal", "18"),
        (Ran("ok", "18.00001"), "correct", "equal", "18.00001"),
        (Ran("ok", "18.1"), "incorrect", "wrong", "18.1"),
        (Ran("ok", "0.0"), "incorrect", "wrong", "0"),
        (Ran("ok", "inf"), "incorrect", "bad_value", None),
        (Ran("ok", "nan"), "incorrect", "bad_value", None),
        (Ran("ok", None), "incorrect", "bad_value", None),
        (Ran("harness_error"), "unscored", "harness_error", None),
        *[(Ran(status), "incorrect", status, None) for status in sorted(PROGRAM_FAILURES)],
    ],
)
def test_what_a_program_gave(ran: Ran, outcome: str, reason: str, extracted: str | None) -> None:
    (verdict,) = verify_solutions([Answer(POT, PROGRAM, "18")], run=runner(ran))
    assert (verdict.outcome, verdict.reason, verdict.extracted) == (outcome, reason, extracted)
    assert verdict.seconds == ran.seconds


def test_order_and_settings_reach_the_runner() -> None:
    seen: list[object] = []

    def run(programs: Sequence[str], workers: int | None, timeout: float) -> Sequence[Ran]:
        seen.extend([list(programs), workers, timeout])
        return [Ran("ok", "1.0"), Ran("exception")]

    answers = [
        Answer(POT, "```python\nanswer = 1\n```", "1"),
        Answer(COT, "The answer is 2.", "2"),
        Answer(POT, "```python\nanswer = 1/0\n```", "3"),
    ]
    verdicts = verify_solutions(answers, workers=3, timeout=1.5, run=run)
    assert seen == [["\nanswer = 1\n", "\nanswer = 1/0\n"], 3, 1.5]
    assert [v.outcome for v in verdicts] == [Outcome.CORRECT, Outcome.CORRECT, Outcome.INCORRECT]


def test_a_runner_that_breaks_its_contract_is_no_verdict() -> None:
    with pytest.raises(InfrastructureError, match="0 of 1"):
        verify_solutions([Answer(POT, PROGRAM, "18")], run=runner())
    with pytest.raises(InfrastructureError, match="unknown status"):
        verify_solutions([Answer(POT, PROGRAM, "18")], run=runner(Ran("fine")))


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\na = 1\n```\nthen\n```python\nanswer = 2\n```", "answer = 2"),
        ("```python\nanswer = 2\n```\nprints\n```\n2\n```", "answer = 2"),
        ("```python\nanswer = 2\n```\n```output\n2\n```", "answer = 2"),
        ("```py\nanswer = 2\n", "answer = 2"),
        ("```\nanswer = 2\n```", "answer = 2"),
        ("~~~python\nanswer = '```'\n~~~", "answer = '```'"),
        ("Program of Thought:\nx = 1\nanswer = x + 1", "x = 1\nanswer = x + 1"),
        ("def solution():\n    return 2", "def solution():\n    return 2"),
        ("answer == 2", None),
        ("The answer is 2.", None),
        ("```python\n\n```", None),
        ("```json\n{}\n```", None),
        ("", None),
    ],
)
def test_program_of(text: str, program: str | None) -> None:
    found = program_of(text)
    assert (found and found.strip()) == program


def test_every_status_of_the_sandbox_is_known_here() -> None:
    assert {str(status) for status in Status} == PROGRAM_FAILURES | {"ok", "harness_error"}


PROGRAMS = [
    ("```python\neggs = 16 - 3 - 4\nanswer = eggs * 2\n```", "correct", "equal", "18"),
    ("```python\nfrom fractions import Fraction\nanswer = Fraction(36, 2)\n```", "correct", "equal", "18"),
    ("```python\ndef solution():\n    return 9 * 2\n```", "correct", "equal", "18"),
    ("```python\nprint(18)\nanswer = 17.5\n```", "incorrect", "wrong", "17.5"),
    ("```python\nanswer = 18 +\n```", "incorrect", "syntax_error", None),
    ("```python\nanswer = 1 / 0\n```", "incorrect", "exception", None),
    ("```python\nwhile True: pass\n```", "incorrect", "timeout", None),
    ("```python\nx = 18\n```", "incorrect", "bad_value", None),
    ("```python\nanswer = True\n```", "incorrect", "bad_value", None),
    ("```python\nanswer = float('nan')\n```", "incorrect", "bad_value", None),
    ("```python\nimport os; os._exit(0)\n```", "incorrect", "killed", None),
    ("```python\nimport sys; answer = 18; sys.exit(0)\n```", "incorrect", "exception", None),
    ("```python\nx = input()\nanswer = 18\n```", "incorrect", "exception", None),
]


@pytest.mark.sandbox
@pytest.mark.usefixtures("sandbox")
def test_programs_in_the_real_sandbox() -> None:
    answers = [Answer(POT, text, "18") for text, *_ in PROGRAMS]
    verdicts = verify_solutions(answers, workers=2, timeout=2.0)
    found = [(str(v.outcome), v.reason, v.extracted) for v in verdicts]
    assert found == [tuple(expected) for _, *expected in PROGRAMS]
