"""A PostgreSQL server for one test: its own data folder, a port on the loopback, a password."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.services import eventually, free_port

PASSWORD = "only-for-this-test"


def find_programs() -> Path | None:
    """The folder with initdb and postgres, newest version first, or None."""
    found = shutil.which("initdb")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next(
        (folder for folder in folders if all((folder / p).exists() for p in ("initdb", "postgres"))), None
    )


@contextmanager
def serve(folder: Path) -> Iterator[str]:
    """Yields the connection URL for Prefect. Skips where there is no PostgreSQL."""
    programs = find_programs()
    if programs is None:
        pytest.skip("no PostgreSQL here (initdb and postgres; Debian's package `postgresql` brings them)")
    data, words, port = folder / "data", folder / "password", free_port()
    words.write_text(PASSWORD)
    as_user = _as_user(folder)
    init = [
        str(programs / "initdb"),
        "-D",
        str(data),
        "-U",
        "prefect",
        f"--pwfile={words}",
        "-A",
        "scram-sha-256",
    ]
    done = subprocess.run(
        [*init, "-E", "UTF8", "--no-sync"], capture_output=True, text=True, cwd=folder, **as_user
    )
    assert done.returncode == 0, done.stderr
    settings = [
        "-c",
        "listen_addresses=127.0.0.1",
        "-c",
        f"unix_socket_directories={folder}",
        "-c",
        "fsync=off",
    ]
    with (folder / "postgres.log").open("wb") as log:
        server = subprocess.Popen(
            [str(programs / "postgres"), "-D", str(data), "-p", str(port), *settings], stdout=log, stderr=log,
            cwd=folder, **as_user,
        )  # fmt: skip
    try:
        ready = b"ready to accept connections"
        eventually(lambda: ready in (folder / "postgres.log").read_bytes(), "PostgreSQL is ready")
        yield f"postgresql+asyncpg://prefect:{PASSWORD}@127.0.0.1:{port}/postgres"
    finally:
        server.terminate()
        server.wait(60)


def _as_user(folder: Path) -> dict:
    """PostgreSQL refuses to run as root: then it runs as an ordinary user, who must own the folder."""
    if os.geteuid() != 0:
        return {}
    import pwd

    user = next((u for u in ("postgres", "nobody") if _known(u)), None)
    if user is None:
        pytest.skip("PostgreSQL does not run as root, and there is no other user here")
    for path in (folder, *folder.iterdir()):
        os.chown(path, pwd.getpwnam(user).pw_uid, -1)
    for above in folder.parents:  # pytest makes its folders for their owner alone
        if not above.stat().st_mode & 0o001:
            above.chmod(above.stat().st_mode | 0o011)
    return {"user": user}


def _known(user: str) -> bool:
    import pwd

    try:
        return bool(pwd.getpwnam(user))
    except KeyError:
        return False
