"""What a run is told about its surroundings reaches them."""

from pathlib import Path
from typing import Any

import pytest

from reasoner.engines import pool
from reasoner.engines.protocol import EngineSettings
from reasoner.home import Home
from tasks.context import run_context


def test_an_unused_engine_ends_after_the_configured_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float | None] = []
    plain = pool.open_engine

    def open_engine(settings: EngineSettings, **options: Any) -> Any:
        given.append(options["idle_seconds"])
        return plain(settings, **options)

    monkeypatch.setattr(pool, "open_engine", open_engine)
    settings = EngineSettings(
        "scripted", tmp_path, "auto", options={"script": "tests.unit.engines.scripts:echo"}
    )
    with run_context("run", home=Home(tmp_path / "home"), idle_seconds=7.5) as run:
        run.engines.acquire(settings)
    assert given == [7.5]
