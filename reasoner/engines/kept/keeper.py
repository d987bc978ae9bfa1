"""The process above a kept engine: `python -m reasoner.engines.kept.keeper SOCKET LOG OWNER`.

It is in a session of its own, so that the end of the client's process group does not reach it, and does nothing but
wait. The engine and all that it starts end before this process does, however it ends (reasoner.process.guard); SIGTERM
ends them in order.
"""

import signal
import sys
from pathlib import Path
from typing import NoReturn

from reasoner.engines.engine_process import start_engine
from reasoner.engines.kept.record import remove_socket

LISTENER = "reasoner.engines.kept.listener"


def stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def main(path: Path, log: Path, owner: str) -> None:
    """Run the engine to its end, and say in its log how it ended if that was no peaceful one."""
    signal.signal(signal.SIGTERM, stop)
    try:
        with start_engine(LISTENER, [path, owner], log) as engine:
            if engine.wait():
                print(f"the engine {engine.how_it_ended()}", flush=True)
    finally:
        remove_socket(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
