"""The questions as files: `train.jsonl`, `validation.jsonl`, one `eval-NAME.jsonl` a set, `left-out.jsonl`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from reasoner.config.data import DataConfig
from reasoner.errors import DataError
from reasoner.extensions import is_dotted, source_hash
from reasoner.ids import file_hash
from reasoner.problems.preparing import prepare as prepare_sets
from reasoner.problems.telling import choose_telling
from reasoner.problems.word_problems import VERSION as GENERATOR_VERSION
from reasoner.records import Problem
from reasoner.stages.smart import write_json
from reasoner.store.rows import read_rows, write_rows

TRAIN, VALIDATION, POOL = "train", "validation", "pool"
COUNTS = "counts.json"


def fingerprint(data: DataConfig) -> dict[str, Any]:
    """What the configuration does not say of the data: the content of files, the generator's version.

    A Hub data set without `revision` counts by its name: the commit that was found first is kept with the artifact.
    """
    sources = {
        **{f"pool.{k}": s for k, s in data.pool.items()},
        **{f"eval.{k}": s for k, s in data.evaluation.items()},
    }
    found: dict[str, Any] = {}
    for name, source in sources.items():
        if source.kind == "file":
            path = Path(source.path)
            if not path.is_file():
                raise DataError(
                    f"data set {source.name!r}: no file {source.path}; give its path or leave it out"
                )
            found[name] = file_hash(path)
        elif source.kind == "generated":
            own = is_dotted(source.path)
            found[name] = source_hash(source.path, f"data.{name}.path") if own else GENERATOR_VERSION
    return found


def prepare(out: Path, data: DataConfig, seed: int) -> dict[str, Any]:
    """Write the splits into `out`; returns counts and fingerprints for the manifest."""
    sets = prepare_sets(data, seed)
    write_rows(out / f"{TRAIN}.jsonl", [p.to_row() for p in sets.train])
    write_rows(out / f"{VALIDATION}.jsonl", [p.to_row() for p in sets.validation])
    for name, problems in sets.evaluation.items():
        write_rows(out / f"eval-{name}.jsonl", [p.to_row() for p in problems])
    left_out = [item for part in (sets.pool, *sets.sources.values()) for item in part.left_out]
    write_rows(
        out / "left-out.jsonl",
        [{"set": i.source, "row": i.row, "reason": i.reason, "excerpt": i.excerpt} for i in left_out],
    )
    return {"counts": sets.counts(), "sources": sets.fingerprints()}


def choose(
    out: Path, problems: Path, judged: Iterable[tuple[str, bool]], pass_rate: tuple[float, float]
) -> dict[str, int]:
    """GRPO's questions, the training questions within `pass_rate`: `train.jsonl`, `counts.json`; returns the counts.

    `judged` are pairs of a question's id and whether an answer was right. Raises DataError where none is left.
    """
    low, high = pass_rate
    asked = read(problems, TRAIN)
    found = choose_telling(asked, judged, low, high)
    if not found.problems:
        raise DataError(
            f"grpo.pass_rate=[{low:g}, {high:g}] leaves none of {len(asked)} training questions "
            f"({found.counts['too_hard']} below, {found.counts['too_easy']} above): widen it, or leave it unset"
        )
    write_rows(out / f"{TRAIN}.jsonl", [p.to_row() for p in found.problems])
    write_json(out / COUNTS, found.counts)
    return found.counts


def read(folder: Path, split: str) -> list[Problem]:
    """The problems of one split; `pool` is `train` and `validation`, `eval-NAME` an evaluation set."""
    names = (TRAIN, VALIDATION) if split == POOL else (split,)
    return [Problem.from_row(row) for name in names for row in read_rows(folder / f"{name}.jsonl")]


def read_pool(folder: Path) -> dict[str, list[Problem]]:
    """The training and the validation problems by split."""
    return {split: read(folder, split) for split in (TRAIN, VALIDATION)}
