"""The same problems in the answers of two models."""

from collections.abc import Mapping

from reasoner.errors import DataError
from reasoner.evaluation.answered import UNNAMED, Answered, Answers

Sets = Mapping[str, Mapping[str, Answers]]
Pairs = list[tuple[Answers, Answers]]


def named_alike(a: Answered, b: Answered) -> tuple[Sets, Sets]:
    """A single set without a name is taken for the other side's single set."""
    if len(a.sets) == len(b.sets) == 1:
        (name_a, rows_a), (name_b, rows_b) = *a.sets.items(), *b.sets.items()
        if UNNAMED in (name_a, name_b):
            name = name_a or name_b or "all"
            return {name: rows_a}, {name: rows_b}
        keys = [_by_content(rows) for rows in (rows_a, rows_b)]
        if name_a != name_b and all(keys) and set(keys[0] or ()) == set(keys[1] or ()):
            return {name_b: rows_a}, {name_b: rows_b}  # the same problems under two names
    return a.sets, b.sets


def _by_content(rows: Mapping[str, Answers]) -> dict[str, Answers] | None:
    """Problems by question and gold, or None where some have no text or two are the same."""
    found = {one.content: one for one in rows.values()}
    return found if "" not in found and len(found) == len(rows) else None


def paired(
    name: str, name_a: str, name_b: str, a: Mapping[str, Answers], b: Mapping[str, Answers], shared: bool
) -> Pairs:
    """The same problems of both, by question and gold where both know them, else by id.

    Raises DataError where the problems differ, with `shared` only where none is common.
    """
    by_content = _by_content(a), _by_content(b)
    left: Mapping[str, Answers] = a
    right: Mapping[str, Answers] = b
    if by_content[0] is not None and by_content[1] is not None:
        left, right = by_content[0], by_content[1]
    both = [key for key in left if key in right]
    only = [
        (name_a, [left[k] for k in left if k not in right]),
        (name_b, [right[k] for k in right if k not in left]),
    ]
    if (only[0][1] or only[1][1]) and not (shared and both):
        told = "; ".join(
            f"{len(rows)} only in {who} (first: {_short(rows[0])})" for who, rows in only if rows
        )
        hint = (
            f"--shared compares the {len(both)} that both have" if both else "evaluate both on the same file"
        )
        raise DataError(f"{name}: the problems differ: {told}; {hint}")
    return [(left[key], right[key]) for key in both]


def _short(one: Answers) -> str:
    return repr(" ".join(one.question.split())[:50]) if one.question else one.problem_id
