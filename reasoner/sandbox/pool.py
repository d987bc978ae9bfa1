"""Many jobs at once: bounded concurrency over one sandbox, results in order or as they come.

Threads are enough: the work is done in the sandboxes' processes.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from threading import Event
from typing import TypeVar

from reasoner.errors import UsageError
from reasoner.sandbox.jobs import Calls, CallsResult, Program, Result
from reasoner.sandbox.sandbox import Sandbox

Job = str | Program | Calls
Answer = Result | CallsResult
Item = TypeVar("Item")
Value = TypeVar("Value")


def run_programs(
    jobs: Iterable[Job],
    *,
    workers: int | None = None,
    timeout: float | None = None,
    sandbox: Sandbox | None = None,
) -> list[Answer]:
    """Run jobs in sandboxes; the answers in the order of the jobs.

    A string or `Program` is answered by a `Result`, `Calls` by a `CallsResult`. `workers` is the number of
    sandboxes at a time (the cores by default), `timeout` the wall-clock limit in seconds of a job that brings
    no limits of its own. Raises SandboxUnavailableError where programs cannot be isolated.
    """
    answers = dict(stream_programs(jobs, workers=workers, timeout=timeout, sandbox=sandbox))
    return [answers[index] for index in range(len(answers))]


def stream_programs(
    jobs: Iterable[Job],
    *,
    workers: int | None = None,
    timeout: float | None = None,
    sandbox: Sandbox | None = None,
) -> Iterator[tuple[int, Answer]]:
    """As `run_programs`, yielding `(i, answer)` as soon as the i-th job is done; takes jobs as it needs them.

    Closing the iterator ends the sandboxes that still run.
    """
    sandbox = sandbox or Sandbox.detect()
    limits = sandbox.limits if timeout is None else replace(sandbox.limits, wall_seconds=timeout)
    limited = replace(sandbox, limits=limits)
    return stream_map(lambda job, cancel: limited.evaluate(job, cancel=cancel), jobs, workers)


def stream_map(
    function: Callable[[Item, Event], Value], items: Iterable[Item], workers: int | None
) -> Iterator[tuple[int, Value]]:
    """Yield `(i, function(item, cancel))` as each is done, in `workers` threads.

    `cancel` is set when the iterator is closed; a function that runs sandboxes hands it to them.
    """
    if workers is not None and workers < 1:
        raise UsageError(f"workers is {workers}: it must be at least 1")
    return _stream(function, iter(items), workers or len(os.sched_getaffinity(0)))


def _stream(
    function: Callable[[Item, Event], Value], items: Iterator[Item], workers: int
) -> Iterator[tuple[int, Value]]:
    cancel = Event()
    pending: dict[Future[Value], int] = {}
    numbered = enumerate(items)
    with ThreadPoolExecutor(workers, thread_name_prefix="sandbox") as pool:
        try:
            while True:
                while len(pending) < workers + 1 and (item := next(numbered, None)) is not None:
                    pending[pool.submit(function, item[1], cancel)] = item[0]
                if not pending:
                    return
                for future in wait(pending, return_when=FIRST_COMPLETED).done:
                    yield pending.pop(future), future.result()
        finally:
            cancel.set()
            for future in pending:
                future.cancel()
