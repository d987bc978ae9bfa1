"""A tiny base model that all tests of the room share."""

from pathlib import Path

import pytest

from reasoner.training import runtime
from tests.unit.training import tiny


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """One thread, so that a sum has one order; no network."""
    runtime.prepare_process(1)


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama with its tokenizer. Read only."""
    return tiny.make_model(tmp_path_factory.mktemp("base") / "tiny")
