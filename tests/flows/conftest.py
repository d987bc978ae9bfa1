"""One Prefect server for the session; a home folder of its own for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.testing.utilities import prefect_test_harness


@pytest.fixture(scope="session", autouse=True)
def server() -> Iterator[None]:
    with prefect_test_harness(server_startup_timeout=300):
        yield


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REASONER_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
