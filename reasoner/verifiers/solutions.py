"""Verdicts on worked solutions in SMART's three strategies, whose gold is one number (METHODS 1.1.1, 1.2).

`cot` and `sub`: the number that the response states. `pot`: the number that its program computes in the
sandbox. The model's failure is `incorrect` with a reason; an unreadable gold and a failed sandbox are
`unscored`. A machine without a sandbox raises SandboxUnavailableError: programs are never run bare.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from reasoner.errors import InfrastructureError
from reasoner.records import Outcome, Strategy, Verdict
from reasoner.verifiers.numbers import canonical_number, extract_number, numbers_equal, parse_number

VERSION = 1
"""Part of every stage key that holds verdicts; counts up when a verdict may come out otherwise."""

PROGRAM_FAILURES = frozenset(
    ("exception", "syntax_error", "timeout", "memory", "killed", "bad_value", "output_limit")
)

_FENCE = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*([A-Za-z0-9_+.-]*)[^\n]*$", re.MULTILINE)
_PYTHON = frozenset(("python", "python3", "py"))
_ASSIGNS = re.compile(r"\banswer\b[^\n=]{0,60}=(?!=)|^\s*def\s+solution\s*\(", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Answer:
    """One response to judge: `text` is the model's text alone, `gold` the number as text."""

    strategy: Strategy
    text: str
    gold: str


@dataclass(frozen=True, slots=True)
class Ran:
    """What became of one program: `status` is `ok`, one of PROGRAM_FAILURES or `harness_error`.

    `value` is the text of `float(answer)` where the status is `ok`.
    """

    status: str
    value: str | None = None
    seconds: float = 0.0


Runner = Callable[[Sequence[str], int | None, float], Sequence[Ran]]
"""Runs programs isolated: (programs, workers, seconds a program) -> one result a program, in order."""


def verify_solutions(
    answers: Sequence[Answer],
    *,
    workers: int | None = None,
    timeout: float = 5.0,
    run: Runner | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Verdict]:
    """One verdict an answer, in order. `workers` sandboxes at once (None: one a core), `timeout` seconds a
    program. `on_progress` gets how many verdicts of how many are known: once before the programs run, then a
    program.

    Raises SandboxUnavailableError where programs can't be isolated and InfrastructureError where the runner
    breaks its contract.
    """
    verdicts: list[Verdict | None] = [None] * len(answers)
    programs: dict[int, str] = {}
    for i, answer in enumerate(answers):
        if parse_number(answer.gold) is None:
            verdicts[i] = Verdict(Outcome.UNSCORED, "gold_unreadable")
        elif answer.strategy != Strategy.POT:
            verdicts[i] = _compare(extract_number(answer.text), answer.gold)
        elif (program := program_of(answer.text)) is not None:
            programs[i] = program
        else:
            verdicts[i] = Verdict(Outcome.INCORRECT, "unparsed")

    def show(ran: int) -> None:
        if on_progress is not None:
            on_progress(len(answers) - len(programs) + ran, len(answers))

    show(0)
    if programs:
        sources = list(programs.values())
        results = run(sources, workers, timeout) if run else run_in_sandbox(sources, workers, timeout, show)
        if len(results) != len(programs):
            raise InfrastructureError(f"the sandbox answered {len(results)} of {len(programs)} programs")
        for i, ran in zip(programs, results, strict=True):
            verdicts[i] = _judge(ran, answers[i].gold)
    return [verdict for verdict in verdicts if verdict is not None]


def program_of(text: str) -> str | None:
    """The last fenced Python block, or the whole text where it has no block and assigns `answer`; else None.

    A block that is not closed ends with the text. Blocks without a language count where none says Python.
    Whether it compiles is left to the sandbox: compiling hostile text can crash an interpreter.
    """
    tagged: str | None = None
    untagged: str | None = None
    opened: tuple[str, str, int] | None = None
    for fence in _FENCE.finditer(text):
        if opened is None:
            opened = (fence[1], fence[2].lower(), fence.end())
        elif fence[1][0] == opened[0][0] and len(fence[1]) >= len(opened[0]) and not fence[2]:
            tagged, untagged = _keep(opened, text[opened[2] : fence.start()], tagged, untagged)
            opened = None
    if opened is not None:
        tagged, untagged = _keep(opened, text[opened[2] :], tagged, untagged)
    program = tagged if tagged is not None else untagged
    if program is None:
        bare = text.strip().removeprefix(f"{Strategy.POT.title}:")
        program = bare if _ASSIGNS.search(bare) else None
    return program if program is not None and program.strip() else None


def form_of(text: str) -> Strategy:
    """How a solution is read, whatever it calls itself: as a program where it has a fenced block, else as prose."""
    return Strategy.POT if _FENCE.search(text) else Strategy.COT


def _keep(
    opened: tuple[str, str, int], block: str, tagged: str | None, untagged: str | None
) -> tuple[str | None, str | None]:
    if opened[1] in _PYTHON:
        return block, untagged
    return tagged, untagged if opened[1] else block


def run_in_sandbox(
    programs: Sequence[str],
    workers: int | None,
    timeout: float,
    on_progress: Callable[[int], None] | None = None,
) -> list[Ran]:
    """The default runner: reasoner.sandbox, one fresh sandbox a program. `on_progress` gets how many ended."""
    from reasoner.sandbox import Program, Result, stream_programs

    results: dict[int, Ran] = {}
    jobs = (Program(source) for source in programs)
    for index, answer in stream_programs(jobs, workers=workers, timeout=timeout):
        assert isinstance(answer, Result)
        results[index] = Ran(str(answer.status), answer.value if answer.ok else None, answer.seconds)
        if on_progress is not None:
            on_progress(len(results))
    return [results[index] for index in range(len(programs))]


def _judge(ran: Ran, gold: str) -> Verdict:
    if ran.status == "harness_error":
        return Verdict(Outcome.UNSCORED, "harness_error", None, ran.seconds)
    if ran.status in PROGRAM_FAILURES:
        return Verdict(Outcome.INCORRECT, ran.status, None, ran.seconds)
    if ran.status != "ok":
        raise InfrastructureError(f"the sandbox answered with the unknown status {ran.status!r}")
    try:
        value = float(ran.value or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        return Verdict(Outcome.INCORRECT, "bad_value", None, ran.seconds)
    return _compare(Fraction(repr(value)), gold, ran.seconds)


def _compare(prediction: Fraction | None, gold: str, seconds: float = 0.0) -> Verdict:
    if prediction is None:
        return Verdict(Outcome.INCORRECT, "unparsed", None, seconds)
    extracted = canonical_number(prediction)
    if numbers_equal(prediction, parse_number(gold)):
        return Verdict(Outcome.CORRECT, "equal", extracted, seconds)
    return Verdict(Outcome.INCORRECT, "wrong", extracted, seconds)
