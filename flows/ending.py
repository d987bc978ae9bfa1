"""How a command is told to end, and what it says then: one line, and the exit status that shells give.

Covers Ctrl-C and SIGTERM, in a flow and outside of one, and a Prefect server that holds up the end. What a run leaves
is the run's business: see `tasks.gpu` and `reasoner.process`.
"""

import os
import signal
import sys
import time
from typing import NoReturn

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
WORDS = {
    INTERRUPTED: "interrupted; the same command goes on from where it was",
    TERMINATED: "ended by SIGTERM; the same command goes on from where it was",
}
SETTLE_SECONDS, HURRIED_SECONDS = 20.0, 5.0
"""How long the server may take for the last logs and events; and where this process was told to end."""
SENDERS = {"prefect.events.worker": "EventsWorker", "prefect.logging.handlers": "APILogWorker"}
"""What sends them to the server, in threads of their own."""


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


def settle(status: int) -> None:
    """Let the server have the last logs and events; one that does not take them in time ends this process at once.

    Prefect itself waits for them at the end of the process, and where the server accepts requests and answers none,
    tries each of them for seven minutes.
    """
    seconds = HURRIED_SECONDS if status in WORDS else SETTLE_SECONDS
    deadline = time.monotonic() + seconds
    for module, name in SENDERS.items():
        if module not in sys.modules:
            continue
        _, waiting = getattr(sys.modules[module], name).drain_all(
            timeout=max(0.0, deadline - time.monotonic())
        )
        if waiting:
            print(f"reasoner: the Prefect server has not taken the last logs and events in {seconds:.0f} s; its pages "
                  "may lack some. Nothing else is lost.", file=sys.stderr)  # fmt: skip
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)


def _raise(number: int, frame: object) -> NoReturn:
    raise Terminated(TERMINATED)
