"""The process that forks commands, and the undisturbed runs: each made once a session, when a cell first needs it."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from tests.flows.faults import worlds
from tests.flows.faults.commands import Commands
from tests.flows.faults.worlds import World


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the worlds are; `REASONER_FAULT_WORLDS` keeps them for the next session, for work on the matrix itself."""
    kept = os.environ.get("REASONER_FAULT_WORLDS")
    return Path(kept) if kept else tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="session")
def commands(room: Path, server: None) -> Iterator[Commands]:
    room.mkdir(parents=True, exist_ok=True)
    forks = Commands(str(PREFECT_API_URL.value()), room / "commands.log")
    yield forks
    forks.close()


@pytest.fixture(scope="session")
def world(room: Path, commands: Commands) -> Callable[[str], World]:
    made: dict[str, World] = {}

    def get(name: str) -> World:
        if name not in made:
            folder = room / name
            if (folder / "world.json").is_file():
                made[name] = worlds.load(folder)
            else:
                shutil.rmtree(folder, ignore_errors=True)
                made[name] = worlds.make(name, folder, commands)
                worlds.save(made[name])
        return made[name]

    return get


@pytest.fixture(scope="session")
def clock_shim(room: Path) -> Path:
    """A library that turns the wall clock back; skips where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler to build the library that turns the clock back")
    shim = room / "clock.so"
    source = Path(__file__).with_name("clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", shim, source, "-ldl"], check=True)
    return shim
