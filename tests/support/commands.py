"""Runs the command line in a process of its own, on the test session's Prefect server."""

import os
import subprocess
import sys
from pathlib import Path

from prefect.settings import PREFECT_API_URL

ROOT = Path(__file__).resolve().parents[2]


def start(home: Path, *arguments: str, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """`reasoner ARGUMENTS` with everything it says in `log`."""
    return start_alone(home, *arguments, log=log, PREFECT_API_URL=str(PREFECT_API_URL.value()), **environment)


def start_alone(home: Path, *arguments: str, log: Path, **environment: str) -> subprocess.Popen[bytes]:
    """The same without the session's server: the command starts one of its own, as on a user's machine."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    env = {**inherited, "REASONER_HOME": str(home), "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-c", "from flows.cli import main; main()", *arguments]
    with log.open("ab") as out:
        return subprocess.Popen(command, env=env, cwd=ROOT, stdout=out, stderr=out, start_new_session=True)
