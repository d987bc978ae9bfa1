"""Every cell of the fault matrix: a fault meets a run, the user is told in a line, the same command makes what is owed.

Wrong if a run ends with another status than is documented, shows a traceback, or if the same command again ends with
other digests than an undisturbed run, computes more than the stage that was cut off, or leaves anything behind.
`cells.py` has the table. Cells of the short form run by default, the others with `make test-faults`.
"""

import contextlib
import os
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.flows.faults import confine
from tests.flows.faults.cells import CELLS, CHECKPOINTS, Cell
from tests.flows.faults.commands import Command, Commands, request_of
from tests.flows.faults.planting import BALLAST
from tests.flows.faults.worlds import SECONDS, World

pytestmark = [pytest.mark.flows, pytest.mark.crash, pytest.mark.timeout(2 * SECONDS)]

SPARE = {
    "smart": 24 << 20,
    "smart-later": 24 << 20,
    "smart-grpo": 64 << 20,
    "planner": 64 << 20,
    "multiturn": 64 << 20,
}
"""Bytes that are free on the small disk before it is filled."""
LINES = 14
"""A failed child's last lines stand below the line that tells of it."""


def parameters() -> list[Any]:
    """Cells of one world stay with one of several test processes: each process makes the worlds that it needs."""
    return [
        pytest.param(
            cell,
            id=cell.name,
            marks=[pytest.mark.xdist_group(cell.world), *([] if cell.short else [pytest.mark.faults])],
        )
        for cell in CELLS
    ]


class Trial:
    """One cell's home and the commands that run in it."""

    def __init__(self, cell: Cell, world: World, commands: Commands, log: Path) -> None:
        self.cell, self.world, self.commands, self.log = cell, world, commands, log
        self.home = world.home
        """As seen from the tests."""
        self.more: dict[str, Any] = {}
        self.env: dict[str, str] = {}

    def start(self, fault: dict[str, Any], log: Path | None = None) -> Command:
        plan = {"computed": str(self.world.computed), **fault}
        request = request_of(self.world.argv, log or self.log, self.world.home, plan, **self.more)
        return self.commands.start_apart(request, **self.env) if self.env else self.commands.start(request)

    def wait(self, command: Command) -> int:
        return self.commands.wait(command, SECONDS)

    def computed(self) -> Counter[str]:
        """The stages that were computed since the last call."""
        found = (
            Counter(self.world.computed.read_text().split()) if self.world.computed.exists() else Counter()
        )
        self.world.computed.unlink(missing_ok=True)
        return found


@contextlib.contextmanager
def machine(trial: Trial, request: pytest.FixtureRequest) -> Iterator[None]:
    """What the cell's runs live on."""
    cell, world = trial.cell, trial.world
    if cell.machine == "disk":
        reason = confine.why_no_small_disk()
        if reason:
            pytest.skip(reason)
        source = world.folder / "source"
        shutil.rmtree(source, ignore_errors=True)
        world.home.rename(source)
        world.home.mkdir()
        size = sum(p.stat().st_size // 4096 * 4096 + 4096 for p in source.rglob("*")) + SPARE[cell.world]
        with confine.small_disk(world.home, source, size) as disk:
            trial.more["disk"], trial.home = disk.pid, disk.seen
            yield
        return
    if cell.machine == "obedient":
        trial.more["obedient"] = True
    elif cell.machine == "server":
        trial.env = {"PREFECT_API_URL": ""}
    elif cell.machine == "clock":
        shim = request.getfixturevalue("clock_shim")
        back = world.folder / "clock-is-back"
        back.unlink(missing_ok=True)
        trial.env = {"LD_PRELOAD": str(shim), "REASONER_TEST_CLOCK": str(back)}
    yield


@pytest.mark.parametrize("cell", parameters())
def test_a_fault_is_told_and_the_same_command_makes_what_is_owed(
    cell: Cell,
    world: Callable[[str], World],
    commands: Commands,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    place = world(cell.world)
    place.prepare(cell.stage)
    trial = Trial(cell, place, commands, tmp_path / "log")
    with machine(trial, request):
        begun = [trial.start(cell.fault_plan)]
        if cell.fault == "two-at-once":
            begun.append(trial.start({}, tmp_path / "other.log"))
        statuses = [trial.wait(command) for command in begun]
        said = trial.log.read_text()
        assert statuses == [cell.status] * len(begun), said
        check_words(cell, said)
        first = trial.computed()
        assert first[cell.stage] == 1, (first, said)

        mend(trial)
        trial.env = {} if cell.machine == "clock" else trial.env
        trial.log = tmp_path / "again.log"
        assert trial.wait(trial.start({})) == 0, trial.log.read_text()
        assert place.problems(trial.home) == []
        check_owed(cell, first, trial.computed())


def check_words(cell: Cell, said: str) -> None:
    """A line of ours, no traceback, no log of Prefect's, and no talk of a bug."""
    assert "Traceback" not in said and 'File "' not in said, said
    assert "a bug of ours" not in said, said
    assert " | ERROR" not in said and "Error logging to API" not in said, f"Prefect's own log: {said}"
    if cell.status in (1, 143):
        at = said.find("\nreasoner: ")
        assert at >= 0 and re.search(cell.says, said[at:]), said
        assert len(said[at:].splitlines()) <= LINES, said
    assert re.search(cell.says, said), said


def check_owed(cell: Cell, first: Counter[str], again: Counter[str]) -> None:
    """Only what was cut off is computed again; an altered input is made anew, too, and nothing after an end is owed."""
    if cell.status == 0 and cell.fault != "read-only-cache":
        assert not again, again
    elif cell.fault == "altered-input":
        assert again.pop(cell.stage) == 1 and sum(again.values()) == 1, again
    else:
        assert again == {cell.stage: 1}, again


def mend(trial: Trial) -> None:
    """What a person does, who was told: make room, give permission. A torn checkpoint is nobody's to mend."""
    (trial.home / BALLAST).unlink(missing_ok=True)
    for name in trial.cell.details.get("folders", ()):
        (trial.home / name).chmod(0o755)
    if trial.cell.fault == "truncated-checkpoint":
        pattern = f"work/*/{CHECKPOINTS[trial.cell.stage]}/checkpoint-*"
        # The process may have been killed when it had made the folder of the next one and nothing in it.
        begun = [folder for folder in trial.home.glob(pattern) if any(p.is_file() for p in folder.rglob("*"))]
        newest = max(begun, key=lambda folder: int(folder.name.rpartition("-")[2]))
        largest = max((p for p in newest.rglob("*") if p.is_file()), key=lambda path: path.stat().st_size)
        os.truncate(largest, largest.stat().st_size // 2)
