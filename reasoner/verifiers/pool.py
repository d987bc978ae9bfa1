"""A pool of killable worker processes that judge mathematics: one verdict a row, in order, whatever the rows
hold.

Covers starting, feeding, replacing and ending the workers (reasoner.verifiers.worker). A row that its worker
could not answer is tried once in a new worker; if that fails too the verdict is `unscored` (`pool_failed`),
never a guess. Memory is bounded: at most WINDOW rows a worker are read ahead of the slowest one. Threads only
wait for workers; all parsing of hostile text happens in the workers.
"""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Literal, Self

from reasoner.errors import InfrastructureError
from reasoner.process.environment import python_path
from reasoner.records import Outcome, Verdict
from reasoner.verifiers.math import MathItem
from reasoner.verifiers.policy import MathPolicy
from reasoner.verifiers.worker import WALL_FACTOR

Opinion = Literal["ours", "math_verify"]
WINDOW = 512
START_LIMIT = 120.0
"""Seconds that a worker may take to load sympy on a busy machine."""
_GRACE = 20.0
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "SYSTEMROOT")


class WorkerDied(InfrastructureError):
    """A worker ended, broke the protocol or did not answer in time."""


class Worker:
    """One worker process and its socket. Not thread safe."""

    def __init__(self, policy: MathPolicy, timeout: float, opinion: Opinion = "ours") -> None:
        self._limit = 3 * WALL_FACTOR * timeout + _GRACE
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self._socket, theirs = socket.socketpair()
        environment = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
        # A fixed hash seed makes sympy's order of terms, and so a verdict, the same in every process.
        environment |= {"PYTHONPATH": python_path(), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "reasoner.verifiers.worker"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=self._errors,
                env=environment,
                start_new_session=True,
            )
        self._lines = self._socket.makefile("rb")
        settings = {"policy": policy.model_dump(), "timeout": timeout, "opinion": opinion}
        self._send(settings, START_LIMIT)
        self._ready = False

    def wait_until_ready(self) -> None:
        """Raises WorkerDied where the worker could not start."""
        if not self._ready:
            self._receive(START_LIMIT)
            self._ready = True

    def ask(self, item: MathItem) -> Verdict:
        """The worker's verdict. Raises WorkerDied; then the worker must be killed."""
        self.wait_until_ready()
        self._send({"gold": item.gold, "prediction": item.prediction}, self._limit)
        return Verdict.from_row(self._receive(self._limit))

    def _send(self, row: dict[str, Any], limit: float) -> None:
        self._socket.settimeout(limit)
        try:
            self._socket.sendall(json.dumps(row).encode() + b"\n")
        except OSError as error:
            raise WorkerDied(f"a math worker took no row ({error}){self._last_words()}") from error

    def _receive(self, limit: float) -> dict[str, Any]:
        self._socket.settimeout(limit)
        try:
            line = self._lines.readline()
            return dict(json.loads(line))
        except (OSError, ValueError) as error:
            raise WorkerDied(f"a math worker gave no answer ({error}){self._last_words()}") from error

    def _last_words(self) -> str:
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - 300))
        words = self._errors.read().decode(errors="replace").strip().splitlines()
        return f": {words[-1]}" if words else ""

    def kill(self) -> None:
        """End the worker and its judge at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._lines.close()
        self._socket.close()
        self._errors.close()


class MathPool:
    """Workers that stay warm between calls; a context manager. `workers` None means one a core.

    `opinion` "math_verify" asks math-verify alone, which knows no policy, in the same killable workers.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        timeout: float = 5.0,
        policy: MathPolicy | None = None,
        opinion: Opinion = "ours",
    ) -> None:
        self.workers = workers or len(os.sched_getaffinity(0))
        self._policy, self._timeout, self._opinion = policy or MathPolicy(), timeout, opinion
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="math-verdicts")
        self._free: queue.SimpleQueue[Worker | None] = queue.SimpleQueue()
        self._all: list[Worker] = []
        self._lock, self._closed = threading.Lock(), False
        try:
            started = [self._new_worker() for _ in range(self.workers)]
            for worker in started:
                worker.wait_until_ready()
                self._free.put(worker)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def verdicts(self, items: Iterable[MathItem]) -> Iterator[Verdict]:
        """One verdict an item, in order, as soon as it and all before it are known."""
        waiting: deque[Future[Verdict]] = deque()
        try:
            for item in items:
                waiting.append(self._threads.submit(self._verdict, item))
                while waiting and (waiting[0].done() or len(waiting) >= WINDOW * self.workers):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()

    def _verdict(self, item: MathItem) -> Verdict:
        worker = self._free.get()
        try:
            for _ in range(2):
                try:
                    worker = worker or self._new_worker()
                    return worker.ask(item)
                except WorkerDied:
                    if worker is not None:
                        self._end(worker)
                        worker = None
            return Verdict(Outcome.UNSCORED, "pool_failed")
        finally:
            self._free.put(worker)

    def _new_worker(self) -> Worker:
        with self._lock:
            if self._closed:
                raise WorkerDied("the pool is closed")
            worker = Worker(self._policy, self._timeout, self._opinion)
            self._all.append(worker)
            return worker

    def _end(self, worker: Worker) -> None:
        with self._lock:
            if worker in self._all:
                self._all.remove(worker)
                worker.kill()

    def close(self) -> None:
        """End all workers; may be called twice."""
        with self._lock:
            self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for worker in list(self._all):
            self._end(worker)
        self._threads.shutdown(wait=True)


def verify_math(
    items: Iterable[MathItem],
    *,
    workers: int | None = None,
    timeout: float = 5.0,
    policy: MathPolicy | None = None,
) -> Iterator[Verdict]:
    """One verdict an item, in order, judged in `workers` killable processes (None: one a core).

    `timeout` is the limit of one try in seconds of processor time; a row that hits it is tried once more. Raises
    InfrastructureError where no worker can start. The workers end with the iterator.
    """
    with MathPool(workers=workers, timeout=timeout, policy=policy) as pool:
        yield from pool.verdicts(items)
