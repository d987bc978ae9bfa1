"""Judges completions: `completions.jsonl` in, `attempts.jsonl` out. Needs no accelerator and no model."""

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from reasoner.config.smart import SmartVerifyConfig, VerifyConfig
from reasoner.errors import InfrastructureError, SandboxUnavailableError
from reasoner.methods.smart.attempts import Attempt
from reasoner.methods.smart.parse import parse_response
from reasoner.prompts.solution_end import whole_solution
from reasoner.records import Outcome, Strategy, Verdict
from reasoner.sandbox import Sandbox
from reasoner.stages.generation import FILE as COMPLETIONS
from reasoner.store.rows import read_rows, write_rows
from reasoner.verifiers import solutions
from reasoner.verifiers.numbers import TOLERANCE
from reasoner.verifiers.solutions import Answer, form_of, verify_solutions

FILE = "attempts.jsonl"


NO_STRATEGY = Verdict(Outcome.INCORRECT, "no_strategy")

OnProgress = Callable[[dict[str, Any]], None]
"""Takes `done` and `total` verdicts, such as `Workbench.child_progress`."""


def judge(
    out: Path, completions: Path, config: SmartVerifyConfig, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Write one attempt a completion; returns counts by outcome and reason, and what judged, for the manifest."""
    attempts = judged(read_rows(completions / COMPLETIONS), config, on_progress, by_form=config.by_form)
    stop_if_unscored(attempts, config)
    write_rows(out / FILE, [attempt.to_row() for attempt in attempts])
    return {
        "attempts": len(attempts),
        "outcomes": dict(sorted(Counter(str(a.verdict.outcome) for a in attempts).items())),
        "reasons": dict(sorted(Counter(a.verdict.reason for a in attempts).items())),
        "verifier": solutions.VERSION,
        "tolerance": TOLERANCE,
        "sandbox": _backend(),
    }


def judged(
    rows: Sequence[dict[str, Any]],
    config: VerifyConfig,
    on_progress: OnProgress | None = None,
    *,
    by_form: bool = False,
) -> list[Attempt]:
    """One attempt a row of completions, in order, with this version's verdict.

    A response without a strategy's name is incorrect (reason `no_strategy`) and is not run. What the named strategy
    decides is how the answer is read; with `by_form` the response itself decides.
    """
    parsed: list[Parts] = []
    answers: dict[int, Answer] = {}
    for i, row in enumerate(rows):
        parts = _parts(row)
        parsed.append(parts)
        if parts.strategy is not None:
            read_as = form_of(parts.solution) if by_form and not row["strategy"] else parts.strategy
            answers[i] = Answer(read_as, parts.solution, row["gold"])

    def show(done: int, total: int) -> None:
        if on_progress is not None:
            skipped = len(rows) - total
            on_progress({"done": skipped + done, "total": len(rows)})

    found = verify_solutions(
        list(answers.values()), workers=config.workers, timeout=config.timeout, on_progress=show
    )
    verdicts = dict(zip(answers, found, strict=True))
    return [
        _attempt(row, parts, verdicts.get(i, NO_STRATEGY))
        for i, (row, parts) in enumerate(zip(rows, parsed, strict=True))
    ]


def read(folders: Sequence[Path]) -> list[Attempt]:
    """All attempts of some artifacts."""
    return [Attempt.from_row(row) for folder in folders for row in read_rows(folder / FILE)]


class Parts(NamedTuple):
    """What a completion consists of."""

    strategy: Strategy | None
    solution: str
    finish: str


def _parts(row: dict[str, Any]) -> Parts:
    """A few-shot row's strategy is given and its run-on cut off; a policy's response names its strategy."""
    if row["strategy"]:
        strategy = Strategy(row["strategy"])
        solution, whole = whole_solution(strategy, row["text"], row["finish"])
        return Parts(strategy, solution, "stop" if whole else row["finish"])
    parsed = parse_response(row["text"])
    return Parts(parsed.strategy, parsed.solution, row["finish"])


def _attempt(row: dict[str, Any], parts: Parts, verdict: Verdict) -> Attempt:
    timeless = Verdict(verdict.outcome, verdict.reason, verdict.extracted)  # times would change the digest
    return Attempt(
        problem_id=row["problem_id"],
        strategy=parts.strategy,
        turn=row["turn"],
        tried=tuple(row["tried"]),
        index=row["index"],
        text=row["text"],
        solution=parts.solution,
        verdict=timeless,
        finish=parts.finish,
    )


def _backend() -> str | None:
    """The sandbox of this machine; None where it has none, so that no program was run."""
    try:
        return Sandbox.detect().backend
    except SandboxUnavailableError:
        return None


def stop_if_unscored(attempts: Sequence[Attempt], config: VerifyConfig) -> None:
    """InfrastructureError where a larger share than `max_unscored` is unscored."""
    unscored = [a for a in attempts if a.verdict.outcome == Outcome.UNSCORED]
    if attempts and len(unscored) / len(attempts) > config.max_unscored:
        reasons = Counter(a.verdict.reason for a in unscored).most_common(3)
        raise InfrastructureError(
            f"{len(unscored)} of {len(attempts)} verdicts are unscored ({', '.join(f'{r} {n}' for r, n in reasons)}), "
            f"more than verify.max_unscored={config.max_unscored}; mend the cause and run the same command again"
        )
