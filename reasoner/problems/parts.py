"""The parts of a multi-turn run's problems: train, validation, test, by hash of the question, in fixed sizes.

A problem's rank depends on its question and `problems.seed` alone, never on the training's seed; the lowest ranks are
the test, the next ones the validation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from reasoner.config.problems import EnvType, ProblemsConfig
from reasoner.environments import Environment
from reasoner.errors import DataError
from reasoner.problems import contamination
from reasoner.problems.judged import load_judged
from reasoner.problems.loading import LeftOut
from reasoner.problems.splitting import position
from reasoner.records import Problem


@dataclass(frozen=True, slots=True)
class Parts:
    """Problem sets that share no question."""

    train: tuple[Problem, ...]
    validation: tuple[Problem, ...]
    test: tuple[Problem, ...]
    left_out: tuple[LeftOut, ...]
    facts: dict[str, Any]
    """Counts and fingerprints, for the manifest."""


def prepare_parts(config: ProblemsConfig, env_type: EnvType, environment: Environment) -> Parts:
    """Load, try and split. Raises DataError where a part would be empty or training meets evaluation."""
    seed = config.seed
    loaded = load_judged(config.train, env_type, environment, config)
    facts: dict[str, Any] = {"train": {"counts": loaded.counts(), "source": loaded.fingerprint}}
    left, pool = list(loaded.left_out), list(loaded.problems)
    if config.test is not None:
        apart = load_judged(config.test, env_type, environment, config)
        facts["test"] = {"counts": apart.counts(), "source": apart.fingerprint}
        left += apart.left_out
        test, _ = cut(ranked(apart.problems, seed), config.test_size or len(apart.problems))
        pool, facts["dropped overlaps"] = _without_test(pool, test, config)
        order = ranked(pool, seed)
    else:
        order = ranked(pool, seed)
        test, order = cut(order, config.test_size)
    validation, train = cut(order, config.validation_size)
    sizes = {"train": len(train), "validation": len(validation), "test": len(test)}
    _check_sizes(sizes, config)
    return Parts(tuple(train), tuple(validation), tuple(test), tuple(left), {**facts, "sizes": sizes})


def ranked(problems: Sequence[Problem], seed: int) -> list[Problem]:
    """Problems by the hash of their question; questions that are one after normalisation stand together."""
    return sorted(problems, key=lambda p: (position(p.group, seed), p.id))


def cut(order: Sequence[Problem], size: int) -> tuple[list[Problem], list[Problem]]:
    """The first `size` problems and the rest; a question on the border goes into the first part whole."""
    while 0 < size < len(order) and order[size].group == order[size - 1].group:
        size += 1
    return list(order[:size]), list(order[size:])


def _without_test(
    pool: list[Problem], test: Sequence[Problem], config: ProblemsConfig
) -> tuple[list[Problem], int]:
    if config.overlap == "error":
        contamination.check(pool, {"test": test})
        return pool, 0
    overlaps = contamination.find(pool, {"test": test})
    return contamination.without(pool, overlaps), len(overlaps)


def _check_sizes(sizes: dict[str, int], config: ProblemsConfig) -> None:
    wanted = {
        "train": 1,
        "validation": config.validation_size,
        "test": 1 if config.test else config.test_size,
    }
    short = [name for name, least in wanted.items() if sizes[name] < least]
    if short:
        have = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise DataError(
            f"too few problems for {' and '.join(short)} ({have}): use more problems, or lower problems.test_size "
            f"and problems.validation_size"
        )
