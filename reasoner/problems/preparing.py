"""All problem sets of a run: the pool's parts and the evaluation sets, with what was left out of them."""

from dataclasses import dataclass
from typing import Any

from reasoner.config.data import HELD_OUT, DataConfig
from reasoner.errors import DataError
from reasoner.problems import contamination
from reasoner.problems.contamination import Overlap
from reasoner.problems.loading import Loaded, load_problems, merge
from reasoner.problems.splitting import TRAIN, VALIDATION, split
from reasoner.records import Problem


@dataclass(frozen=True, slots=True)
class Prepared:
    """Problem sets that share no question between training and evaluation."""

    train: tuple[Problem, ...]
    validation: tuple[Problem, ...]
    evaluation: dict[str, tuple[Problem, ...]]
    """By name; `held-out` comes first where the pool was cut."""
    pool: Loaded
    sources: dict[str, Loaded]
    """The evaluation sources as they were read."""
    dropped: tuple[Overlap, ...]
    """Pool questions that `overlap: drop` left out."""

    def fingerprints(self) -> dict[str, Any]:
        """What identifies the data, for a manifest."""
        return {
            "pool": self.pool.fingerprint,
            "evaluation": {name: loaded.fingerprint for name, loaded in self.sources.items()},
        }

    def counts(self) -> dict[str, Any]:
        """How many problems each set has, and what became of the other rows."""
        return {
            "train": len(self.train),
            "validation": len(self.validation),
            "evaluation": {name: len(problems) for name, problems in self.evaluation.items()},
            "dropped overlaps": len(self.dropped),
            "rows": {
                "pool": self.pool.counts(),
                **{name: loaded.counts() for name, loaded in self.sources.items()},
            },
        }


def prepare(data: DataConfig, seed: int) -> Prepared:
    """Loads, splits and checks; raises DataError where a set is unusable or training meets evaluation."""
    pool = merge([load_problems(source) for source in data.pool.values()])
    sources = {name: load_problems(source) for name, source in data.evaluation.items()}
    parts = split(pool.problems, data, seed)
    evaluation: dict[str, tuple[Problem, ...]] = {}
    if data.held_out:
        evaluation[HELD_OUT] = tuple(parts[HELD_OUT])
    evaluation.update({name: loaded.problems for name, loaded in sources.items()})
    learned = parts[TRAIN] + parts[VALIDATION]
    dropped: list[Overlap] = []
    if data.overlap == "error":
        contamination.check(learned, evaluation)
    else:
        dropped = contamination.find(learned, evaluation)
    train = tuple(contamination.without(parts[TRAIN], dropped))
    if not train:
        raise DataError(
            "every training question is also an evaluation question; change data.pool or data.evaluation"
        )
    return Prepared(
        train=train,
        validation=tuple(contamination.without(parts[VALIDATION], dropped)),
        evaluation=evaluation,
        pool=pool,
        sources=sources,
        dropped=tuple(dropped),
    )
