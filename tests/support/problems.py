"""Problems of ours in the shapes of the original's CSV files, and the sections that read them."""

from pathlib import Path
from typing import Any

from reasoner.config.multiturn import EnvType, ProblemsConfig

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
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
