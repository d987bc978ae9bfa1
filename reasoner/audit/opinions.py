"""Judges attempts again with this version's verifier, and asks a second opinion where there is one.

Prose: math-verify alone. Programs: the same program is run once more; one that answers otherwise is not to be trusted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.audit.runs import Run, Source
from reasoner.config.smart import VerifyConfig
from reasoner.errors import DataError, SandboxUnavailableError
from reasoner.ids import content_hash
from reasoner.methods.smart.attempts import Attempt
from reasoner.records import Strategy, Verdict
from reasoner.sandbox import Sandbox
from reasoner.stages import verdicts
from reasoner.store.rows import read_rows
from reasoner.verifiers.math import MathItem
from reasoner.verifiers.pool import MathPool
from reasoner.verifiers.solutions import Answer, form_of, verify_solutions

Show = Callable[[str, int, int], None]
"""Told what is being done, how many are done, and of how many."""


@dataclass(frozen=True)
class Reviewed:
    """One attempt with its gold, the verdict of today, and a second opinion.

    `now` is None where programs cannot be run here, `second` where there is no second opinion.
    """

    source: str
    attempt: Attempt
    gold: str
    now: Verdict | None
    second: Verdict | None = None


Row = tuple[Source, Attempt, dict[str, Any]]
"""Where an attempt comes from, the attempt, and the row of completions that it judges."""


def read_attempts(run: Run) -> list[Row]:
    """All attempts of a run. Raises DataError where attempts and completions do not fit."""
    found: list[Row] = []
    for source in run.sources:
        rows = read_rows(source.completions)
        attempts = verdicts.read([source.attempts.parent])
        if [a.problem_id for a in attempts] != [row["problem_id"] for row in rows]:
            raise DataError(
                f"{source.attempts} does not judge {source.completions} row by row; run the stage again"
            )
        found += [(source, attempt, row) for attempt, row in zip(attempts, rows, strict=True)]
    return found


def part_of(found: Sequence[Row], limit: int) -> list[Row]:
    """`limit` attempts spread over all of them, the same ones every time."""
    order = sorted(range(len(found)), key=lambda i: content_hash([i, found[i][1].text], 16))
    return [found[i] for i in sorted(order[:limit])]


def review(found: Sequence[Row], config: VerifyConfig, show: Show = lambda *_: None) -> list[Reviewed]:
    """Attempts judged again, with a second opinion."""
    able = sandbox_is_there()
    reviewed: list[Reviewed | None] = [None] * len(found)
    read_as = [_read_as(*one) for one in found]
    judged = [i for i, strategy in enumerate(read_as) if able or strategy is not Strategy.POT]
    today: dict[int, Attempt] = {}
    for by_form in (False, True):
        part = [i for i in judged if found[i][0].by_form is by_form]
        now = verdicts.judged(
            [found[i][2] for i in part], config, lambda f: show("judge again", f["done"], f["total"]), by_form=by_form,
        )  # fmt: skip
        today |= zip(part, now, strict=True)
    answers = {
        i: Answer(strategy, today[i].solution, found[i][2]["gold"])
        for i in judged
        if (strategy := read_as[i]) is not None
    }
    second = _second_opinions(answers, config, show)
    for i, (source, attempt, row) in enumerate(found):
        verdict = today[i].verdict if i in today else None
        reviewed[i] = Reviewed(source.label, attempt, row["gold"], verdict, second.get(i))
    return [one for one in reviewed if one is not None]


def _read_as(source: Source, attempt: Attempt, row: dict[str, Any]) -> Strategy | None:
    """The strategy by which an answer is read; None where the response names none."""
    by_form = source.by_form and not row["strategy"] and attempt.strategy is not None
    return form_of(attempt.solution) if by_form else attempt.strategy


def sandbox_is_there() -> bool:
    try:
        Sandbox.detect()
    except SandboxUnavailableError:
        return False
    return True


def _second_opinions(answers: dict[int, Answer], config: VerifyConfig, show: Show) -> dict[int, Verdict]:
    programs = [i for i, answer in answers.items() if answer.strategy is Strategy.POT]
    prose = [i for i, answer in answers.items() if answer.strategy is not Strategy.POT]
    again = verify_solutions(
        [answers[i] for i in programs], workers=config.workers, timeout=config.timeout,
        on_progress=lambda done, total: show("run programs again", done, total),
    )  # fmt: skip
    return dict(zip(programs, again, strict=True)) | _by_math_verify(prose, answers, config, show)


def _by_math_verify(
    prose: Sequence[int], answers: dict[int, Answer], config: VerifyConfig, show: Show
) -> dict[int, Verdict]:
    """math-verify's verdicts; what only the clock or a failure ended is no opinion."""
    if not prose:
        return {}
    opinions: dict[int, Verdict] = {}
    items = [MathItem(answers[i].gold, answers[i].text) for i in prose]
    with MathPool(workers=config.workers, opinion="math_verify") as pool:
        for done, (i, verdict) in enumerate(zip(prose, pool.verdicts(items), strict=True), 1):
            if verdict.reason in ("math_verify", "unparsed"):
                opinions[i] = verdict
            show("second opinion", done, len(prose))
    return opinions
