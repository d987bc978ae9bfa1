"""Splits a pool by hash of the original question.

A question's part depends on nothing but its own text and the seed: rephrasings stay together, and adding
problems moves none of the others.
"""

from collections.abc import Iterable

from reasoner.config.data import HELD_OUT, DataConfig
from reasoner.errors import DataError
from reasoner.ids import content_hash
from reasoner.records import Problem

TRAIN = "train"
VALIDATION = "validation"
_DIGITS = 15


def split(problems: Iterable[Problem], data: DataConfig, seed: int) -> dict[str, list[Problem]]:
    """`train`, `validation` and `held-out`, each in the order of `problems`.

    Shares are `data.validation` and `data.held_out` in expectation; a share above 0 that comes out empty, and
    an empty `train`, is a DataError.
    """
    parts: dict[str, list[Problem]] = {TRAIN: [], VALIDATION: [], HELD_OUT: []}
    for problem in problems:
        # held-out comes first, so that a changed validation share moves nothing in or out of it.
        at = position(problem.group, seed)
        if at < data.held_out:
            parts[HELD_OUT].append(problem)
        elif at < data.held_out + data.validation:
            parts[VALIDATION].append(problem)
        else:
            parts[TRAIN].append(problem)
    wanted = {TRAIN: 1.0, VALIDATION: data.validation, HELD_OUT: data.held_out}
    empty = [name for name, share in wanted.items() if share and not parts[name]]
    if empty:
        total = sum(map(len, parts.values()))
        raise DataError(
            f"no problem of the pool ({total}) falls into {' and '.join(empty)}: "
            "use more problems, or set data.validation or data.held_out to 0 or a larger share"
        )
    return parts


def position(group: str, seed: int) -> float:
    """A number in [0, 1), uniform over groups, that depends on the group and the seed only."""
    return int(content_hash(["split", seed, group], _DIGITS), 16) / 16**_DIGITS
