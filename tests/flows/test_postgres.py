"""PostgreSQL as the database of the run's Prefect server: a whole run, then the same from the cache."""

import subprocess
import sys
from pathlib import Path

import asyncpg
import pytest
from prefect.utilities.asyncutils import run_coro_as_sync

from tests.support.postgres import PASSWORD, serve
from tests.support.services import BIN, ROOT, Services
from tests.support.tiny_llama import make_model

pytestmark = [pytest.mark.long, pytest.mark.flows, pytest.mark.timeout(1800)]

PROGRAM = """
import sys
from concurrent.futures import ThreadPoolExecutor
from prefect import flow, task
@task
def work(n):
    return n
@flow(name="load")
def load():
    return sum(work.submit(n).result() for n in range(40))
assert load() == 780
"""


def rows(url: str, query: str) -> list[tuple]:
    async def ask() -> list[tuple]:
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            return [tuple(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()

    return run_coro_as_sync(ask())  # type: ignore[return-value]


def test_a_run_and_parallel_runs_are_kept_in_postgresql(tmp_path: Path) -> None:
    folder = tmp_path / "postgres"
    folder.mkdir()
    with serve(folder) as database:
        services = Services(tmp_path, PREFECT_SERVER_DATABASE_CONNECTION_URL=database)
        started = services.reasoner("up", "--port", str(services.port))
        try:
            assert started.returncode == 0, started.stderr
            assert not list(tmp_path.rglob("prefect.db")), "nothing may go to SQLite"
            environment = {**services.environment, "PREFECT_API_URL": services.url}
            parallel = [
                subprocess.Popen([sys.executable, "-c", PROGRAM], env=environment, cwd=ROOT) for _ in range(3)
            ]
            assert [p.wait(900) for p in parallel] == [0, 0, 0]
            model = make_model(tmp_path / "model")
            command = [
                "run", "smart-demo", "epochs=1", f"model.path={model}", "engine=scripted",
                "engine.options.script=tests.support.solver:solve", "few_shot.strategies=[cot]",
                "data.pool.word_problems.limit=80", "train.precision=fp32", "train.lr=1e-2", "train.min_records=1",
            ]  # fmt: skip
            for _ in range(2):
                done = services.run(
                    str(BIN / "python"), "-m", "flows.cli", *command, PREFECT_API_URL=services.url
                )
                assert done.returncode == 0, done.stderr[-2000:]
        finally:
            services.reasoner("down")
        found = rows(
            database,
            "select f.name, r.state_type::text from flow_run r join flow f on f.id = r.flow_id "
            "where f.name <> 'nightly'",  # the schedule's runs of the next nights are there already
        )
        assert sorted(found) == [("load", "COMPLETED")] * 3 + [("smart", "COMPLETED")] * 2
        cached = rows(database, "select count(*) from task_run where state_name = 'Cached'")
        assert cached[0][0] >= 10
        for path in services.home.rglob("*"):
            assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path
