"""How a command is told to end, and what it says then: one line, and the exit status that shells give.

Covers Ctrl-C and SIGTERM, in a flow and outside of one. What a run leaves is the run's business: see `tasks.gpu` and
`reasoner.process`.
"""

import signal
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
WORDS = {
    INTERRUPTED: "interrupted; the same command goes on from where it was",
    TERMINATED: "ended by SIGTERM; the same command goes on from where it was",
}


class Terminated(SystemExit):
    """SIGTERM outside of a flow; within one it is Prefect's TerminationSignal."""

    code = TERMINATED


def listen() -> None:
    """Make SIGTERM raise `Terminated` from now on, so that what was opened is closed.

    In a flow Prefect's own handler comes first, which ends the run and then sends the signal on to this one.
    """
    signal.signal(signal.SIGTERM, _raise)


def status_of(error: BaseException) -> int | None:
    """The exit status of a command that was told to end; None for an exception that says something else."""
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    # By its name: importing Prefect for it would cost every command a second.
    if isinstance(error, Terminated) or type(error).__name__ == "TerminationSignal":
        return TERMINATED
    return None


def _raise(number: int, frame: object) -> NoReturn:
    raise Terminated(TERMINATED)
