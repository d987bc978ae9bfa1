"""The programs of benchmarks/, for the tests of what they say."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module", autouse=True)
def benchmarks() -> Iterator[None]:
    """The programs stand beside the packages and import each other by name. For the module that imports this."""
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


def program(name: str) -> Any:
    return importlib.import_module(name)
