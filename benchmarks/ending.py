"""How long a run on the pools takes to end: seconds until its processes are gone and the slot of the gpu pool is free.

    python benchmarks/ending.py [--times 5] [--folder FOLDER]

Starts a server, pools and workers (`reasoner up`), then again and again a parent whose stage on the gpu pool has a real
engine (`transformers`, a tiny model on the CPU) at work, and ends it in two ways:

* `cancel`: the parent is set to Cancelling, as `prefect flow-run cancel` does. Processes are those of the parent
  and of the stage, engine included.
* `worker`: SIGTERM to the worker of the gpu pool. Processes are the worker and those of the stage, engine included.

Prints one JSON object: for each way and moment the median of the seconds, a 95 % bootstrap interval, and all values.
The aim is 10 s. Beside other work it measures that, too: `load` is the load of the machine before and after.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from paced import median_interval, software

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.parents import Parent, begin, running_children, with_engine  # noqa: E402
from tests.support.services import Services, ask, eventually, tree  # noqa: E402
from tests.support.tiny_llama import make_model  # noqa: E402

SECONDS = 120.0
"""After which a run that has not ended is an error."""
POLL = 0.1


def cancel(services: Services, parent: Parent, child: str) -> tuple[float, float]:
    """Seconds until the processes are gone, and until the slot is free."""
    processes = [*with_engine(services, child), *own(services, parent)]
    state = {"type": "CANCELLING", "name": "Cancelling"}
    begun = time.monotonic()
    ask("POST", f"{services.url}/flow_runs/{parent.run_id}/set_state", state=state)
    return wait(services, processes, child, begun)


def end_worker(services: Services, child: str) -> tuple[float, float]:
    worker = services.workers()["worker-gpu"]
    processes = [worker, *with_engine(services, child)]
    begun = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    return wait(services, processes, child, begun)


def own(services: Services, parent: Parent) -> list[psutil.Process]:
    return tree(eventually(lambda: services.process_of(parent.run_id), "the parent's process"))


def wait(
    services: Services, processes: list[psutil.Process], child: str, begun: float
) -> tuple[float, float]:
    gone = free = 0.0
    while not (gone and free):
        if not gone and not any(running(process) for process in processes):
            gone = time.monotonic() - begun
        if not free and child not in running_children(services):
            free = time.monotonic() - begun
        if time.monotonic() - begun > SECONDS:
            raise SystemExit(f"not ended in {SECONDS:.0f} s: {services.state(child)}, {processes}")
        time.sleep(POLL)
    return gone, free


def running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def start(services: Services, model: Path, seed: int, folder: Path) -> tuple[Parent, str]:
    """A parent, and its stage on the gpu pool once the engine is at work."""
    parent = begin(services, model, seed, folder)
    child = eventually(lambda: running_children(services), "a stage runs")[0]
    eventually(lambda: with_engine(services, child), "its engine is up")
    return parent, child


def summary(seconds: list[float]) -> dict[str, Any]:
    return {**median_interval(seconds), "n": len(seconds), "all": [round(value, 2) for value in seconds]}


def measure(folder: Path, times: int) -> dict[str, Any]:
    services = Services(folder, PREFECT_WORKER_QUERY_SECONDS="2")  # as `reasoner up` sets it
    up(services, "--port", str(services.port))
    found: dict[str, list[tuple[float, float]]] = {"cancel": [], "worker": []}
    try:
        model = make_model(folder / "model")
        for seed in range(times):
            parent, child = start(services, model, 2 * seed, folder)
            found["cancel"].append(cancel(services, parent, child))
            parent.command.wait(SECONDS)
            parent, child = start(services, model, 2 * seed + 1, folder)
            found["worker"].append(end_worker(services, child))
            parent.command.wait(SECONDS)  # the parent's own stage has failed, and so does it
            up(services)
    finally:
        services.reasoner("down")
    return {
        way: {
            "processes_gone": summary([gone for gone, _ in rows]),
            "slot_free": summary([free for _, free in rows]),
        }
        for way, rows in found.items()
    }


def up(services: Services, *arguments: str) -> None:
    done = services.reasoner("up", *arguments)
    if done.returncode:
        raise SystemExit(done.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--times", type=int, default=5, help="ends of each way")
    parser.add_argument("--folder", type=Path, help="an empty folder to work in; a temporary one by default")
    given = parser.parse_args()
    before = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(given.folder or Path(temporary), given.times)
    machine = {**software(), "load": [before, round(os.getloadavg()[0], 1)]}
    print(json.dumps({**found, **machine}, indent=1))


if __name__ == "__main__":
    main()
