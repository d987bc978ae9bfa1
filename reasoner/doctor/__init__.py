"""Looks at this machine and says whether a run can work here, and what to do where it cannot.

`packages` (versions, the lock), `machine` (processor, accelerator, memory, disk, home folder) and `isolation` (the
sandbox's self-test) each give `Check`s. Nothing is changed, and nothing but torch is imported, in a child process.
"""

from collections.abc import Iterator
from pathlib import Path

from reasoner.doctor.check import Check, State
from reasoner.home import Home

LOCKS = Path(__file__).resolve().parents[2] / "locks"


def examine(home: Home, locks: Path = LOCKS) -> Iterator[Check]:
    """Every check, one after the other; takes a few seconds."""
    from reasoner.doctor import isolation, machine, packages

    yield from packages.python()
    yield from packages.needed()
    yield from packages.as_locked(locks)
    yield from machine.processor_and_accelerator()
    yield from machine.memory()
    yield from machine.home_folder(home)
    yield from isolation.sandbox()


__all__ = ["LOCKS", "Check", "State", "examine"]
