"""How many questions a configuration will have, without loading those of the Hub.

Sizes of the Hub's sets are those that their pages state; `limit` cuts them. Rows that loading leaves out, and repeated
questions, are not known before.
"""

from pathlib import Path
from typing import Any

from reasoner.config.data import HELD_OUT, DataConfig, SourceConfig
from reasoner.config.problems import ProblemsConfig

HUB_ROWS = {
    "openai/gsm8k:train": 7473, "openai/gsm8k:test": 1319, "ChilleD/SVAMP:train+test": 1000,
    "EleutherAI/asdiv:validation": 2168, "ChilleD/MultiArith:train+test": 580, "meta-math/MetaMathQA:train": 240_000,
    "DigitalLearningGmbH/MATH-lighteval:train": 7500, "HuggingFaceH4/MATH-500:test": 500,
    "google-research-datasets/mbpp:train+validation": 464, "google-research-datasets/mbpp:test": 500,
}  # fmt: skip
UNKNOWN = 1000
"""Rows of a set that nobody knows the size of."""


def rows_of(source: SourceConfig) -> int:
    """Questions of one source, at most its limit. A file's rows are counted, not read."""
    if source.kind == "file":
        count = _rows_of_file(source.path)
    else:
        count = HUB_ROWS.get(f"{source.path}:{source.split}", source.limit or UNKNOWN)
    return min(count, source.limit or count)


def _rows_of_file(name: str) -> int:
    path = Path(name).expanduser()
    if path.suffix == ".parquet":
        import pyarrow.parquet

        return int(pyarrow.parquet.read_metadata(path).num_rows)
    with path.open("rb") as handle:
        lines = sum(1 for _ in handle)
    return max(0, lines - 1) if path.suffix == ".csv" else lines


def is_local(data: DataConfig) -> bool:
    """Whether everything can be loaded from this machine's disk, or generated."""
    return all(s.kind != "hub" for s in (*data.pool.values(), *data.evaluation.values()))


def of_sets(data: DataConfig) -> dict[str, Any]:
    """Expected facts of SMART's and the planner's question sets."""
    pool = sum(map(rows_of, data.pool.values()))
    held, validation = round(pool * data.held_out), round(pool * data.validation)
    splits = {"train": pool - held - validation, "validation": validation}
    splits |= {f"eval-{HELD_OUT}": held} if held else {}
    splits |= {f"eval-{name}": rows_of(source) for name, source in data.evaluation.items()}
    return {"splits": splits, "questions": []}


def of_parts(problems: ProblemsConfig) -> dict[str, Any]:
    """Expected facts of a multi-turn run's problems."""
    rows = rows_of(problems.train)
    test = rows_of(problems.test) if problems.test is not None else rows
    test = min(test, problems.test_size or test)
    train = rows - problems.validation_size - (0 if problems.test is not None else test)
    splits = {"train": max(0, train), "validation": problems.validation_size, "test": test}
    return {"splits": splits, "questions": []}
