"""Prefect's server, with one thing mended: on SQLite it waits 5 s for the database's lock, where Prefect waits 60.

    python -m flows.server start --host HOST --port PORT        # as `prefect server start`
    python -m uvicorn --factory flows.server:create_app

While a writer waits in SQLite, garbage collection may free a statement of the same connection, for which CPython
waits with the interpreter's lock held: then the thread that has the database's lock can't go on either, and the whole
server stands still until the wait is over. A request that waited in vain is answered with 503, upon which Prefect's
clients ask again. PostgreSQL is left alone.
"""

import runpy
import sys
from typing import Any

from prefect.server.database.configurations import AioSqliteConfiguration
from prefect.server.database.dependencies import MODELS_DEPENDENCIES
from prefect.server.utilities.database import get_dialect
from prefect.settings import PREFECT_API_DATABASE_CONNECTION_URL

BUSY_SECONDS = 5


class BriefWaitSqlite(AioSqliteConfiguration):
    """Prefect's configuration of SQLite, but for the wait."""

    def setup_sqlite(self, conn: Any, record: Any) -> None:
        super().setup_sqlite(conn, record)
        cursor = conn.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
        cursor.close()


def shorten_wait() -> None:
    """Make the server of this process use `BriefWaitSqlite` where its database is SQLite. Call it before it starts."""
    url = PREFECT_API_DATABASE_CONNECTION_URL.value()
    if get_dialect(url).name == "sqlite":
        MODELS_DEPENDENCIES["database_config"] = BriefWaitSqlite(connection_url=url)


def create_app() -> Any:
    """Prefect's ASGI application."""
    from prefect.server.api.server import create_app as create_prefect_app

    shorten_wait()
    return create_prefect_app()


if __name__ == "__main__":
    shorten_wait()
    sys.argv[0:1] = ["prefect", "server"]
    runpy.run_module("prefect", run_name="__main__")
