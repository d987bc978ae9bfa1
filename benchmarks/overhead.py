"""What our orchestration costs: time outside of stages, and a run in which every stage is cached.

    python benchmarks/overhead.py [--server] [--folder FOLDER]

Runs a pipeline of a dozen stages (a scripted model answers, a tiny one is trained) as `reasoner run`, then again twice.
Prints one JSON object:

* `outside_stages_seconds`: wall clock of the first run less the seconds of all its stages, as their manifests tell
  them; `percent_of_ten_minutes` is that relative to a pipeline of 600 s (aim: below 2).
* `cached_seconds`: the same command when nothing is owed, the whole process, by the faster of two; with the server that
  the command starts (aim: 20), or with `--server` beside a server that is up (aim: 5).
* `cached_processor_seconds`: user and system time of the same, with all its children; it says more where others work.

Measures the machine as it is: run it on a quiet one, and compare runs on the same one only.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reasoner.store import Store  # noqa: E402  (the path above is for runs out of the repository)
from tests.support.services import Services  # noqa: E402
from tests.support.tiny_llama import make_model  # noqa: E402

PIPELINE_SECONDS = 600.0


def command(model: Path) -> list[str]:
    return [
        "run", "smart-demo", "epochs=1", f"model.path={model}", "engine=scripted",
        "engine.options.script=tests.support.solver:solve", "few_shot.strategies=[cot]", "train.precision=fp32",
        "train.lr=1e-2", "train.batch_size=16", "train.min_records=1",
    ]  # fmt: skip


def timed(services: Services, arguments: list[str], url: str | None) -> tuple[float, float]:
    """Wall clock and processor seconds of a command."""
    environment = {**services.environment, **({"PREFECT_API_URL": url} if url else {})}
    if url is None:
        environment.pop("PREFECT_HOME")  # the command keeps its database in the home folder
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's modules are compiled once, not at every start
    started, used = time.perf_counter(), processor_seconds()
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return time.perf_counter() - started, processor_seconds() - used


def processor_seconds() -> float:
    """What ended children have used so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def stages(services: Services) -> list[dict[str, Any]]:
    store = Store(services.home / "artifacts")
    return [dict(store.manifest(ref).metadata) for ref in store.list()]


def measure(folder: Path, with_server: bool) -> dict[str, Any]:
    services = Services(folder)
    if with_server:
        up = services.reasoner("up", "--port", str(services.port))
        if up.returncode:
            raise SystemExit(up.stderr)
    url = services.url if with_server else None
    try:
        arguments = command(make_model(folder / "model"))
        first, _ = timed(services, arguments, url)
        made = stages(services)
        again = [timed(services, arguments, url) for _ in range(2)]
        assert len(stages(services)) == len(made), "the second run made something anew"
    finally:
        if with_server:
            services.reasoner("down")
    inside = sum(float(stage["seconds"]) for stage in made)
    return {
        "server": "up" if with_server else "started by the command",
        "stages": len(made),
        "first_seconds": round(first, 2),
        "inside_stages_seconds": round(inside, 2),
        "outside_stages_seconds": round(first - inside, 2),
        "percent_of_ten_minutes": round(100 * (first - inside) / PIPELINE_SECONDS, 2),
        "cached_seconds": round(min(again)[0], 2),
        "cached_seconds_all": [round(seconds, 2) for seconds, _ in again],
        "cached_processor_seconds": [round(used, 2) for _, used in again],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server", action="store_true", help="beside a server that is up (reasoner up)")
    parser.add_argument("--folder", type=Path, help="an empty folder to work in; a temporary one by default")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        found = measure(given.folder or Path(temporary), given.server)
    machine = {"machine": platform.machine(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    print(json.dumps({**found, **machine}, indent=1))


if __name__ == "__main__":
    main()
