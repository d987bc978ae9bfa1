"""Problems of ours in the shapes of the original's CSV files, and the sections that read them."""

import atexit
import csv
import shutil
import tempfile
from pathlib import Path
from typing import Any

from reasoner.config.problems import EnvType, ProblemsConfig
from tests.support.problem_rows import MATH, MBPP


def write_fixtures() -> Path:
    """A folder with MATH.csv and mbpp_filtered.csv, which goes with this process."""
    folder = Path(tempfile.mkdtemp(prefix="reasoner-fixtures-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, rows in (("MATH.csv", MATH), ("mbpp_filtered.csv", MBPP)):
        with (folder / name).open("w", newline="") as handle:
            csv.writer(handle, lineterminator="\n").writerows(rows)
    return folder


FIXTURES = write_fixtures()
MATH_COLUMNS = {"question": ["question"], "answer": "answer", "solution": "correct_answer"}
CODE_COLUMNS = {"question": ["problem"], "answer": "test_list", "solution": "reference_solution"}


def section(env_type: EnvType, path: Path | None = None, **fields: Any) -> ProblemsConfig:
    """The problems section of a fixture, or of `path` in the same shape."""
    file = path or FIXTURES / ("MATH.csv" if env_type == "math" else "mbpp_filtered.csv")
    columns = MATH_COLUMNS if env_type == "math" else CODE_COLUMNS
    return ProblemsConfig.model_validate(
        {
            "train": {"name": "ours", "kind": "file", "path": str(file), "columns": columns},
            "test_size": 4,
            "validation_size": 4,
            **fields,
        }
    )
