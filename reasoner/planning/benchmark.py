"""A micro-benchmark of this machine's processor: arithmetic and memory, in float32, about a second.

Counted is the time that the process got, not the clock, and the best of several repeats is taken: so other work on the
machine does not make the processor look slow. A core's arithmetic is multiplied by the cores. numpy's BLAS is measured,
not torch's; how far a real engine and a real training are from it is what the calibration's shares say.
"""

import os
import time
from collections.abc import Callable

from reasoner.planning.device import CPU_FLOOR, Device, host_memory

SIZE, COPIED, REPEATS = 1024, 32 << 20, 5


def best_seconds(work: Callable[[], object], repeats: int = REPEATS) -> float:
    """Seconds of processor time, all threads together: the least of several runs, after one that is not counted."""
    work()
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        work()
        taken.append(time.process_time() - started)
    return max(min(taken), 1e-9)


def measure_cpu() -> Device:
    """The CPU as a device: a product of two SIZE × SIZE matrices, and a copy of numbers (read and written)."""
    import numpy

    rng = numpy.random.default_rng(0)
    a, b = (rng.standard_normal((SIZE, SIZE), dtype=numpy.float32) for _ in range(2))
    out = numpy.empty_like(a)
    flops = cores() * 2 * SIZE**3 / best_seconds(lambda: numpy.matmul(a, b, out=out))
    source = numpy.ones(COPIED, dtype=numpy.float32)
    target = numpy.empty_like(source)
    bandwidth = 2 * source.nbytes / best_seconds(lambda: numpy.copyto(target, source))
    return Device("cpu", flops, bandwidth, host_memory()[0], CPU_FLOOR)


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
