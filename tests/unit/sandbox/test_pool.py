"""Many jobs: order, concurrency, streaming, giving up."""

import gc
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reasoner.errors import SandboxUnavailableError, UsageError
from reasoner.sandbox import (
    Calls,
    CallsResult,
    Limits,
    Program,
    Result,
    Sandbox,
    Status,
    run_programs,
    stream_programs,
)


def test_results_are_in_the_order_of_the_jobs(sandbox: Sandbox) -> None:
    jobs = [f"import time\ntime.sleep({0.3 if i == 0 else 0})\nanswer = {i}" for i in range(8)]
    results = run_programs(jobs, workers=4, timeout=20, sandbox=sandbox)
    assert [r.value for r in results if isinstance(r, Result)] == [f"{i}.0" for i in range(8)]


def test_kinds_of_jobs_may_be_mixed(sandbox: Sandbox) -> None:
    jobs = ["answer = 1", Program("answer = 2"), Calls("def f(): return 3", ("f()",))]
    first, second, third = run_programs(jobs, sandbox=sandbox)
    assert isinstance(first, Result) and first.value == "1.0"
    assert isinstance(second, Result) and second.value == "2.0"
    assert isinstance(third, CallsResult) and third.calls[0].value == 3


def test_limits_of_a_job_hold_against_the_timeout(sandbox: Sandbox) -> None:
    sleep = "import time\ntime.sleep(1.5)\nanswer = 1"
    results = run_programs([sleep, Program(sleep, Limits(wall_seconds=30))], timeout=0.5, sandbox=sandbox)
    assert [r.status for r in results] == [Status.TIMEOUT, Status.OK]


def test_several_at_a_time(sandbox: Sandbox) -> None:
    started = time.monotonic()
    results = run_programs(
        ["import time\ntime.sleep(3)\nanswer = 1"] * 6, workers=6, timeout=60, sandbox=sandbox
    )
    assert all(r.status is Status.OK for r in results)
    assert time.monotonic() - started < 15  # one after another takes more than 18


def test_stream_yields_what_is_ready_and_takes_jobs_as_needed(sandbox: Sandbox) -> None:
    taken = []

    def jobs() -> Iterator[str]:
        for i in range(1000):
            taken.append(i)
            yield "import time\ntime.sleep(2)\nanswer = 0" if i == 0 else f"answer = {i}"

    stream = stream_programs(jobs(), workers=2, timeout=30, sandbox=sandbox)
    index, answer = next(stream)
    assert index != 0 and isinstance(answer, Result) and answer.value == f"{index}.0"
    assert len(taken) < 20
    stream.close()  # type: ignore[attr-defined]


def test_closing_the_stream_ends_what_runs(sandbox: Sandbox) -> None:
    before = threading.active_count()
    stream = stream_programs(
        ["answer = 1", *["import time\ntime.sleep(60)\nanswer = 1"] * 3],
        workers=2,
        timeout=100,
        sandbox=sandbox,
    )
    assert next(stream)[0] == 0
    started = time.monotonic()
    stream.close()  # type: ignore[attr-defined]
    gc.collect()
    assert time.monotonic() - started < 30
    assert threading.active_count() == before


def test_no_jobs_and_bad_workers(sandbox: Sandbox) -> None:
    assert run_programs([], sandbox=sandbox) == []
    with pytest.raises(UsageError, match="workers"):
        run_programs(["answer = 1"], workers=0, sandbox=sandbox)


def test_descriptors_and_processes_are_given_back(sandbox: Sandbox) -> None:
    run_programs(["answer = 1"] * 4, sandbox=sandbox)
    before = len(list(Path("/proc/self/fd").iterdir()))
    jobs = ["answer = 1", "import os\nos._exit(1)", "def f(:", "while True: pass"] * 4
    run_programs(jobs, workers=4, timeout=0.3, sandbox=sandbox)
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_broken_sandbox_is_our_failure(sandbox: Sandbox) -> None:
    broken = Sandbox(sandbox.as_root, filter=b"\xff" * 16, limits=sandbox.limits)
    results = run_programs(["answer = 1", Calls("x = 1", ("x",))], sandbox=broken)
    assert [r.status for r in results] == [Status.HARNESS_ERROR] * 2
    assert isinstance(results[0], Result) and "seccomp" in results[0].message


def test_limits_are_checked() -> None:
    with pytest.raises(UsageError, match="wall_seconds"):
        Limits(wall_seconds=0)
    with pytest.raises(UsageError, match="memory_mib"):
        Limits(memory_mib=-5)
    assert issubclass(SandboxUnavailableError, RuntimeError)
