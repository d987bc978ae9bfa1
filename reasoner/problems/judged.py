"""Problems for the environments math and code: rows read, golds and reference programs tried before they are used.

Math: the gold is the last balanced box of the worked solution, else the answer column; it must parse and verify
against itself. Code: the tests are a list of asserts (a Python literal in a CSV cell); the reference program must pass
them all. A row that fails is left out and listed, never repaired. Covers MATH.csv and mbpp_filtered.csv in the
original's shape, the Hub's MATH and MBPP, and JSON Lines of the same columns.
"""

import ast
import json
from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from reasoner.config.data import ColumnMap, SourceConfig
from reasoner.config.problems import EnvType, ProblemsConfig
from reasoner.environments import Environment
from reasoner.errors import DataError, InfrastructureError
from reasoner.problems.files import read_file
from reasoner.problems.hub import read_hub
from reasoner.problems.loading import LeftOut, Loaded, Numbered, deduplicate
from reasoner.problems.table import Row, Table
from reasoner.records import Outcome, Problem
from reasoner.verifiers.extraction import box_group

EXCERPT = 80
FAILED_GOLD = "gold fails its own check"
FAILED_REFERENCE = "reference fails its own tests"
UNJUDGED = "the judge failed"


def load_judged(
    source: SourceConfig, env_type: EnvType, environment: Environment, config: ProblemsConfig
) -> Loaded:
    """The problems of a source whose gold was tried.

    Raises DataError for a source that is missing, empty or malformed, that lacks a column, or of whose golds more than
    `max_rejected` fail; InfrastructureError where the judge fails on many.
    """
    table = read_hub(source) if source.kind == "hub" else read_file(_existing(source))
    if not table.rows:
        raise DataError(f"data set {source.name}: {source.path} has no rows")
    columns = resolved(source, table)
    found: list[Numbered] = []
    left: list[LeftOut] = []
    for number, row in table.rows:
        made = _problem(row, columns, source, env_type, config.tests_per_problem)
        if isinstance(made, Problem):
            found.append((source.name, number, made))
        else:
            left.append(LeftOut(source.name, number, *made))
    unique, conflicts, duplicates = deduplicate(found)
    kept, rejected = _tried(unique, env_type, environment)
    left = sorted([*left, *conflicts, *rejected], key=lambda item: item.row)
    _check_share(source, left, len(table.rows), config.max_rejected)
    chosen = kept if source.limit is None else kept[: source.limit]
    return Loaded(
        problems=tuple(problem for _, _, problem in chosen),
        left_out=tuple(left),
        fingerprint={**table.fingerprint, "environment": environment.version},
        rows=len(table.rows),
        duplicates=duplicates,
        over_limit=len(kept) - len(chosen),
        positions=tuple((name, number) for name, number, _ in chosen),
    )


def _existing(source: SourceConfig) -> Path:
    """The file of a source; a missing dataset/ file says what is expected there."""
    path = Path(source.path).expanduser()
    if not path.is_file():
        raise DataError(
            f"data set {source.name}: there is no file {source.path}; put it there, name it with "
            f"problems.train.path=FILE, or read the Hub with problems=math-hub or problems=mbpp-hub"
        )
    return path


def resolved(source: SourceConfig, table: Table) -> ColumnMap:
    """The columns that the table has: of several answers the first; a missing answer is fine beside a solution."""
    columns = source.columns
    answers = (columns.answer,) if isinstance(columns.answer, str) else columns.answer
    answer = next((name for name in answers if name in table.columns), answers[0])
    needed = [*columns.question]
    if columns.solution:
        needed.append(columns.solution)
    if answer not in table.columns and not (columns.solution and columns.solution in table.columns):
        needed.append(answer)
    for name in needed:
        if name not in table.columns:
            near = get_close_matches(name, table.columns, 1, 0.5)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DataError(
                f"data set {source.name}: {source.path} has no column {name!r}{hint} Its columns: "
                f"{', '.join(table.columns)}. Set problems.train.columns"
            )
    return columns.model_copy(update={"answer": answer})


def _problem(
    row: Row, columns: ColumnMap, source: SourceConfig, env_type: EnvType, tests: int | None
) -> Problem | tuple[str, str]:
    """The problem of a row, or (reason, excerpt)."""
    question = " ".join(part for name in columns.question if (part := _text(row.get(name))))
    if not question:
        return "no question", excerpt(str(row))
    solution = _text(row.get(columns.solution)) if columns.solution else ""
    assert isinstance(columns.answer, str)
    if env_type == "code":
        return _code_problem(row, columns.answer, question, solution, source.name, tests)
    gold = ", ".join(box_group(solution)) or _text(row.get(columns.answer))
    if not gold:
        return "no gold", excerpt(question)
    tags = {name: _text(row.get(name)) for name in columns.tags}
    return Problem.make(question, gold, source.name, solution=solution, tags=tags)


def _code_problem(
    row: Row, column: str, question: str, reference: str, dataset: str, wanted: int | None
) -> Problem | tuple[str, str]:
    try:
        tests = asserts_of(row.get(column))
        imports = _strings(row.get("test_imports") or [])
    except ValueError as error:
        return "unreadable tests", excerpt(f"{error}: {question}")
    if wanted is not None and len(tests) != wanted:
        return f"not {wanted} tests", excerpt(f"{len(tests)}: {question}")
    if not reference:
        return "no reference", excerpt(question)
    tags = {"imports": json.dumps(imports)} if imports else {}
    if setup := _text(row.get("test_setup_code")):
        tags["setup"] = setup
    return Problem.make(question, json.dumps(tests), dataset, solution=reference, tags=tags)


def asserts_of(cell: Any) -> list[str]:
    """The asserts in a cell: a list, or the text of one as Python or JSON writes it. Raises ValueError."""
    tests = _strings(cell)
    if not tests:
        raise ValueError("no tests")
    for test in tests:
        try:
            statements = ast.parse(test).body
        except SyntaxError as error:
            raise ValueError(f"{test[:40]!r} is not Python ({error.msg})") from None
        if not any(isinstance(node, ast.Assert) for node in statements):
            raise ValueError(f"{test[:40]!r} asserts nothing")
    return tests


def _strings(cell: Any) -> list[str]:
    if isinstance(cell, str):
        try:
            cell = ast.literal_eval(cell)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise ValueError("the cell holds no list of strings") from None
    if not isinstance(cell, list | tuple) or not all(isinstance(item, str) for item in cell):
        raise ValueError("the cell holds no list of strings")
    return [item.replace("\r\n", "\n").strip() for item in cell]


def _tried(
    rows: Sequence[Numbered], env_type: EnvType, environment: Environment
) -> tuple[list[Numbered], list[LeftOut]]:
    """The rows whose own gold is judged correct, and the others."""
    answers = [(p, p.solution if env_type == "code" else f"\\boxed{{{p.gold}}}") for _, _, p in rows]
    kept: list[Numbered] = []
    rejected: list[LeftOut] = []
    for row, judged in zip(rows, environment.judge(answers), strict=True):
        name, number, problem = row
        if judged.verdict.correct:
            kept.append(row)
            continue
        ours = judged.verdict.outcome is Outcome.UNSCORED and judged.verdict.reason in (
            "pool_failed",
            "harness_error",
        )
        reason = UNJUDGED if ours else FAILED_REFERENCE if env_type == "code" else FAILED_GOLD
        rejected.append(
            LeftOut(name, number, reason, excerpt(f"{judged.verdict.reason}: {problem.question}"))
        )
    return kept, rejected


def _check_share(source: SourceConfig, left: Sequence[LeftOut], rows: int, most: float) -> None:
    if len(left) <= most * rows:
        return
    reasons = ", ".join(
        f"{reason} {count}" for reason, count in Counter(i.reason for i in left).most_common(3)
    )
    message = (
        f"data set {source.name}: {len(left)} of {rows} rows can't be used ({reasons}), more than "
        f"problems.max_rejected={most:g}. First: row {left[0].row} ({left[0].reason}): {left[0].excerpt!r}"
    )
    if sum(item.reason == UNJUDGED for item in left) > most * rows:
        raise InfrastructureError(message)
    raise DataError(message)


def _text(cell: Any) -> str:
    return "" if cell is None else str(cell).replace("\r\n", "\n").strip()


def excerpt(text: str) -> str:
    """One short line."""
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"
