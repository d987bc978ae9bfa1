"""Claim: a small program takes tens of milliseconds in the sandbox; 2 cores judge over 20 samples a second.

    python benchmarks/sandbox.py [--seconds 2] [--repeats 7] > sandbox.json

Compares, in ABBA order, samples a second on all cores: programs of thought in the sandbox, code with three tests judged
by `verify_code`, and the same program in a bare `python -I -S -B`. Prints JSON: every repeat, medians, and the
order-statistic interval of about 95 %. The bare subprocess is what isolation is measured against; it is no way to run
untrusted code.
"""

import argparse
import json
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from scipy.stats import binom

from reasoner.sandbox import Sandbox, stream_programs
from reasoner.sandbox.process import ENVIRONMENT, interpreter
from reasoner.sandbox.selftest import passed, self_test
from reasoner.verifiers.code import CodeItem, stream_verdicts

PROGRAM = "total = 0\nfor day in range(1, 31):\n    total += 3 * day\nanswer = total / 2\n"


CODE = "def larger(a, b):\n    return a if a > b else b\n"
TESTS = ("assert larger(1, 2) == 2", "assert larger(-1, -2) == -1", "assert larger(5, 5) == 5")


def judged(sandbox: Sandbox, count: int, workers: int) -> None:
    items = [CodeItem(CODE, TESTS)] * count
    for _, found in stream_verdicts(items, workers=workers, timeout=30, sandbox=sandbox):
        assert found.verdict.correct, found


def sandboxed(sandbox: Sandbox, count: int, workers: int) -> None:
    for _, result in stream_programs([PROGRAM] * count, workers=workers, timeout=30, sandbox=sandbox):
        assert result.status == "ok", result


def bare(count: int, workers: int) -> None:
    def run(_: int) -> None:
        command = [interpreter(), "-I", "-S", "-B", "-c", PROGRAM + "print(repr(float(answer)))"]
        child = subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True)
        assert child.stdout == b"697.5\n"

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, range(count)))


def rate(run: Callable[[int], None], seconds: float) -> float:
    """Programs a second, over at least `seconds`."""
    done, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        run(20)
        done += 20
    return done / (time.perf_counter() - started)


def interval(values: list[float]) -> list[float]:
    """Two order statistics that hold the median with probability of about 95 % (fewer values, less)."""
    rank = int(binom.ppf(0.025, len(values), 0.5))
    ordered = sorted(values)
    return [ordered[max(rank - 1, 0)], ordered[min(len(values) - rank, len(values) - 1)]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    sandbox = Sandbox.detect()
    arms: dict[str, Callable[[int], None]] = {
        "sandbox": lambda count: sandboxed(sandbox, count, options.workers),
        "code with tests": lambda count: judged(sandbox, count, options.workers),
        "bare": lambda count: bare(count, options.workers),
    }
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for run in arms.values():
        run(options.workers)  # warm the page cache
    for repeat in range(options.repeats):
        for name in list(arms) if repeat % 2 == 0 else reversed(arms):
            rates[name].append(round(rate(arms[name], options.seconds), 2))
    slower = {
        name: [b / a for a, b in zip(rates[name], rates["bare"], strict=True)]
        for name in arms
        if name != "bare"
    }
    report = {
        "claim": "at least 20 samples a second on 2 cores",
        "backend": sandbox.backend,
        "self_test_passed": passed(self_test()),
        "cores": os.cpu_count(),
        "workers": options.workers,
        "load_at_end": os.getloadavg()[0],
        "samples_per_second": {
            name: {"median": statistics.median(values), "interval": interval(values), "all": values}
            for name, values in rates.items()
        },
        "times_slower_than_bare": {
            name: {"median": round(statistics.median(r), 2), "interval": [round(x, 2) for x in interval(r)]}
            for name, r in slower.items()
        },
    }
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
