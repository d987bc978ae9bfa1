"""How fast the ledger appends and opens, how much memory its index takes, and how fast owed work is found.

python benchmarks/ledger.py --rows 1000000

Prints one JSON object. Each part runs in a process of its own, so that `peak_mb` is of that part alone.
`append` also measures batches without fsync on the same rows, in alternation, because the ratio carries
over to other machines and the absolute numbers do not.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from reasoner.ledger import Ledger
from reasoner.ledger.keys import request_keys
from reasoner.records import Completion, GenerationRequest, Sampling

FINGERPRINT = "benchmark"
SAMPLING = Sampling(0.7, max_tokens=256)
SHOTS = "Question: a worked example. Answer: its steps. " * 40
TEXT = "Step: so many and so many more make this many. " * 12


def requests(rows: int, samples: int = 8) -> Iterator[GenerationRequest]:
    """`samples` samples of each of rows / samples prompts."""
    for first in range(0, rows, samples):
        problem, prompt = str(first), f"{SHOTS}{first}"
        for index in range(min(samples, rows - first)):
            yield GenerationRequest(problem, prompt, SAMPLING, index=index)


def append(folder: Path, rows: int, batch: int) -> dict[str, Any]:
    """Append all rows in batches, every second batch with its fsync left out."""
    seconds: dict[bool, list[float]] = {True: [], False: []}
    real, flushed = os.fsync, True
    source = requests(rows)
    start = time.perf_counter()
    with Ledger(folder) as ledger:
        while wanted := list(islice(source, batch)):
            keys = request_keys(wanted, FINGERPRINT)
            made = [Completion(TEXT, "stop", 900, 120) for _ in wanted]
            os.fsync = real if flushed else lambda fd: None
            before = time.perf_counter()
            ledger.append(zip(keys, wanted, made, strict=True))
            seconds[flushed].append(time.perf_counter() - before)
            flushed = not flushed
    os.fsync = real
    total = time.perf_counter() - start
    medians = {flag: statistics.median(values) for flag, values in seconds.items() if values}
    return {
        "seconds_with_keys": total,
        "rows_per_second": batch / medians[True],
        "batch_ms_median": 1000 * medians[True],
        "batch_ms_median_without_fsync": 1000 * medians.get(False, float("nan")),
        "bytes": sum(path.stat().st_size for path in folder.glob("*.jsonl")),
    }


def open_it(folder: Path, rows: int, batch: int) -> dict[str, Any]:
    start = time.perf_counter()
    with Ledger(folder) as ledger:
        opened = time.perf_counter() - start
        assert len(ledger) == rows and ledger.damaged == 0
    return {"seconds": opened}


def owed(folder: Path, rows: int, batch: int) -> dict[str, Any]:
    """Half of the keys are there and half are owed."""
    wanted = [replace(request, adapter=str(i % 2)) for i, request in enumerate(requests(rows))]
    start = time.perf_counter()
    keys = request_keys(wanted, {"0": FINGERPRINT, "1": "other"})
    hashed = time.perf_counter() - start
    with Ledger(folder, readonly=True) as ledger:
        start = time.perf_counter()
        missing = [key for key in keys if key not in ledger]
        searched = time.perf_counter() - start
        assert len(missing) == rows // 2
        some = keys[:20_000:2]
        start = time.perf_counter()
        assert all(ledger.get(key) is not None for key in some)
        read = (time.perf_counter() - start) / max(1, len(some))
    return {"seconds": searched, "key_seconds": hashed, "get_us": 1e6 * read}


PARTS = {"append": append, "open": open_it, "owed": owed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--folder", type=Path, help="where to write (default: a temporary folder)")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        result = PARTS[options.part](options.folder, options.rows, options.batch)
        result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps(result))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        report: dict[str, Any] = {
            "rows": options.rows,
            "batch": options.batch,
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "load": os.getloadavg()[0],
        }
        for part in PARTS:
            command = [sys.executable, __file__, "--part", part, "--folder", folder]
            command += ["--rows", str(options.rows), "--batch", str(options.batch)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            report[part] = json.loads(done.stdout)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
