"""Reads a data set into problems: columns mapped, rows filtered, golds read, duplicates removed.

A row that can't be used is left out, counted and listed, never repaired. Rows are never shuffled: the order
is the source's own.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from reasoner.config.data import ColumnMap, SourceConfig
from reasoner.errors import DataError
from reasoner.extensions import is_dotted, load_function, source_hash
from reasoner.ids import content_hash
from reasoner.problems import word_problems
from reasoner.problems.files import read_file
from reasoner.problems.hub import read_hub
from reasoner.problems.table import Row, Table
from reasoner.records import Problem, normalised_text
from reasoner.verifiers.numbers import read_gold

NO_QUESTION = "no question"
NO_GOLD = "no gold"
UNREADABLE = "unreadable gold"
CONFLICT = "conflicting golds"
EXCERPT = 80

Numbered = tuple[str, int, Problem]
"""Source name, row number, problem."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that is no problem, and why."""

    source: str
    row: int
    """Line or row number in the source, from 1."""
    reason: str
    excerpt: str

    def __str__(self) -> str:
        return f"{self.source} row {self.row}: {self.reason}: {self.excerpt}"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A data set that was read."""

    problems: tuple[Problem, ...]
    left_out: tuple[LeftOut, ...]
    """Rows without question or readable gold, and both sides of a question with two golds."""
    fingerprint: dict[str, Any]
    """Identifies the content, for the manifest; holds no folder of this machine."""
    rows: int = 0
    """Rows of the source after `where`."""
    filtered: int = 0
    """Rows that `where` removed."""
    duplicates: int = 0
    """Further rows with a question and gold that an earlier row has."""
    over_limit: int = 0
    """Problems that `limit` did not draw."""
    positions: tuple[tuple[str, int], ...] = field(default=(), repr=False)
    """Source name and row number of each problem."""

    def counts(self) -> dict[str, int]:
        """Every row of the source is in exactly one of these, `rows` apart."""
        reasons = Counter(item.reason for item in self.left_out)
        return {
            "rows": self.rows,
            "problems": len(self.problems),
            "duplicates": self.duplicates,
            "over limit": self.over_limit,
            **dict(sorted(reasons.items())),
        }


def load_problems(source: SourceConfig) -> Loaded:
    """The problems of one source.

    Raises DataError for a source that is missing, empty or malformed, lacks a column, has more unreadable
    golds than `max_unreadable`, or has no usable row.
    """
    if source.kind == "generated" and not is_dotted(source.path):
        return _generated(source)
    table = _table(source)
    if not table.rows:
        raise DataError(f"data set {source.name}: {source.path} has no rows")
    columns = _resolved(source, table)
    kept = [(number, row) for number, row in table.rows if _passes(row, source.where)]
    if not kept:
        raise DataError(f"data set {source.name}: no row passes `where`. {_values(source, table)}")
    found: list[Numbered] = []
    left: list[LeftOut] = []
    for number, row in kept:
        made = _problem(row, columns, source)
        if isinstance(made, Problem):
            found.append((source.name, number, made))
        else:
            left.append(LeftOut(source.name, number, *made))
    _check_share(source, left, len(kept))
    unique, conflicts, duplicates = deduplicate(found)
    chosen = _limited(unique, source)
    if not chosen:
        raise DataError(
            f"data set {source.name}: none of its {len(kept)} rows is usable. {_first(left + conflicts)}"
        )
    return Loaded(
        problems=tuple(problem for _, _, problem in chosen),
        left_out=tuple(sorted(left + conflicts, key=lambda item: item.row)),
        fingerprint=_with_content(table.fingerprint, chosen),
        rows=len(kept),
        filtered=len(table.rows) - len(kept),
        duplicates=duplicates,
        over_limit=len(unique) - len(chosen),
        positions=tuple((name, number) for name, number, _ in chosen),
    )


def merge(parts: Sequence[Loaded]) -> Loaded:
    """Several data sets as one: a question that more than one of them has is kept once, the first."""
    found = [
        (name, row, problem)
        for part in parts
        for (name, row), problem in zip(part.positions, part.problems, strict=True)
    ]
    unique, conflicts, duplicates = deduplicate(found)
    return Loaded(
        problems=tuple(problem for _, _, problem in unique),
        left_out=(*(item for part in parts for item in part.left_out), *conflicts),
        fingerprint={"sources": [part.fingerprint for part in parts]},
        rows=sum(part.rows for part in parts),
        filtered=sum(part.filtered for part in parts),
        duplicates=duplicates + sum(part.duplicates for part in parts),
        over_limit=sum(part.over_limit for part in parts),
        positions=tuple((name, row) for name, row, _ in unique),
    )


def deduplicate(found: Iterable[Numbered]) -> tuple[list[Numbered], list[LeftOut], int]:
    """Each question once: (kept, rows whose question has more than one gold, number of plain duplicates).

    Questions with one gold are equal when their normalised texts are. For a conflict they must be equal but
    for case and white space: the normalised text drops signs, and "5 + 3" and "5 - 3" are two questions with
    two golds.
    """
    groups: dict[str, list[Numbered]] = {}
    for item in found:
        groups.setdefault(" ".join(item[2].question.casefold().split()), []).append(item)
    kept: dict[tuple[str, str], Numbered] = {}
    conflicts: list[LeftOut] = []
    duplicates = 0
    for group in groups.values():
        first = group[0][2]
        if len({problem.gold for _, _, problem in group}) > 1:
            conflicts += [
                LeftOut(name, row, CONFLICT, _excerpt(f"{problem.gold} for {problem.question}"))
                for name, row, problem in group
            ]
        elif kept.setdefault((normalised_text(first.question), first.gold), group[0]) is group[0]:
            duplicates += len(group) - 1
        else:
            duplicates += len(group)
    return list(kept.values()), conflicts, duplicates


def _table(source: SourceConfig) -> Table:
    """The rows of a data set of the Hub, of a file, or of a function of the user's own."""
    if source.kind == "hub":
        return read_hub(source)
    if source.kind == "file":
        return read_file(Path(source.path))
    key = f"data set {source.name}: path"
    made = load_function(source.path, key)(source.limit, source.seed)
    facts = {"kind": "generated", "generator": source.path, "source": source_hash(source.path, key)}
    return Table.of(enumerate(map(dict, made), 1), facts)


def _generated(source: SourceConfig) -> Loaded:
    if source.path != word_problems.NAME:
        raise DataError(
            f"data set {source.name}: no generator {source.path!r}; there is {word_problems.NAME}, or your own as "
            "module:name (docs/extending.md)"
        )
    count = source.limit or 0
    problems = word_problems.generate(count, source.seed, dataset=source.name)
    fingerprint = {
        "kind": "generated",
        "generator": word_problems.NAME,
        "version": word_problems.VERSION,
        "seed": source.seed,
        "count": count,
    }
    chosen = [(source.name, number, problem) for number, problem in enumerate(problems, 1)]
    return Loaded(
        problems=tuple(problems),
        left_out=(),
        fingerprint=_with_content(fingerprint, chosen),
        rows=count,
        positions=tuple((name, number) for name, number, _ in chosen),
    )


def _resolved(source: SourceConfig, table: Table) -> ColumnMap:
    """The column map with one answer column; raises DataError where a column is not there."""
    columns = source.columns
    answers = (columns.answer,) if isinstance(columns.answer, str) else columns.answer
    answer = next((name for name in answers if name in table.columns), answers[0])
    optional = [name for name in (columns.original, columns.solution) if name]
    for name in (*columns.question, answer, *optional, *columns.tags, *source.where):
        if name not in table.columns:
            near = get_close_matches(name, table.columns, 1, 0.5) or [
                other for other in table.columns if other.casefold() == name.casefold()
            ]
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise DataError(
                f"data set {source.name}: {source.path} has no column {name!r}{hint} "
                f"Its columns: {', '.join(table.columns)}. Set the set's `columns`"
            )
    return columns.model_copy(update={"answer": answer})


def _passes(row: Row, where: dict[str, tuple[str, ...]]) -> bool:
    return all(
        any(_matches(str(row.get(column)), value) for value in values) for column, values in where.items()
    )


def _matches(cell: str, value: str) -> bool:
    return cell.startswith(value[:-1]) if value.endswith("*") else cell == value


def _values(source: SourceConfig, table: Table) -> str:
    """What the filtered columns hold, most frequent first."""
    parts = []
    for column, wanted in source.where.items():
        there = Counter(str(row.get(column)) for _, row in table.rows).most_common(5)
        parts.append(f"{column} is {', '.join(value for value, _ in there)}, wanted {' or '.join(wanted)}")
    return "; ".join(parts)


def _problem(row: Row, columns: ColumnMap, source: SourceConfig) -> Problem | tuple[str, str]:
    """The problem of a row, or (reason, excerpt)."""
    question = " ".join(part for name in columns.question if (part := _text(row, name)))
    if not question:
        return NO_QUESTION, _excerpt(str(row))
    assert isinstance(columns.answer, str)
    cell = row.get(columns.answer)
    if cell is None or not str(cell).strip():
        return NO_GOLD, _excerpt(question)
    gold = read_gold(cell, source.answer_format)
    if gold is None:
        return UNREADABLE, _excerpt(str(cell)[-EXCERPT:])
    return Problem.make(
        question,
        gold,
        source.name,
        original=_text(row, columns.original) or None,
        solution=_text(row, columns.solution),
        tags={name: _text(row, name) for name in columns.tags},
    )


def _text(row: Row, column: str | None) -> str:
    cell = row.get(column) if column else None
    return "" if cell is None else str(cell).strip()


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= EXCERPT else line[: EXCERPT - 1] + "…"


def _check_share(source: SourceConfig, left: list[LeftOut], rows: int) -> None:
    unreadable = [item for item in left if item.reason in (UNREADABLE, NO_GOLD)]
    share = len(unreadable) / rows
    if share > source.max_unreadable:
        raise DataError(
            f"data set {source.name}: {len(unreadable)} of {rows} golds ({share:.1%}) can't be read as a "
            f"number, more than max_unreadable={source.max_unreadable:g}. {_first(unreadable)}. "
            f"Check `columns.answer` and `answer_format` ({source.answer_format})"
        )


def _first(items: list[LeftOut]) -> str:
    return "First: " + "; ".join(f"row {item.row} ({item.reason}): {item.excerpt!r}" for item in items[:3])


def _limited(unique: list[Numbered], source: SourceConfig) -> list[Numbered]:
    """`limit` problems by hash of seed and question, in the source's order."""
    if source.limit is None or source.limit >= len(unique):
        return unique
    order = sorted(range(len(unique)), key=lambda i: content_hash([source.seed, unique[i][2].question]))
    return [unique[i] for i in sorted(order[: source.limit])]


def _with_content(fingerprint: dict[str, Any], chosen: list[Numbered]) -> dict[str, Any]:
    return {**fingerprint, "problems": content_hash([problem.id for _, _, problem in chosen])}
