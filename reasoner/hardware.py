"""What this machine computes fast, asked without importing torch."""

import functools
import os
import re
from pathlib import Path

from reasoner.errors import InfrastructureError

BF16_FLAGS = frozenset({"avx512_bf16", "amx_bf16", "bf16"})
"""Processor flags (x86 and Arm) of bfloat16 arithmetic."""


@functools.cache
def cpu_computes_bf16() -> bool:
    """Whether the processor has bfloat16 instructions. Without them bfloat16 is emulated.

    Measured on a processor with AVX2 alone, 2 cores: a linear layer ran at 34 GFLOP/s in float32, 7 in bfloat16.
    """
    try:
        words = Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False
    return bool(BF16_FLAGS & set(words))


def served_dtype(dtype: str, cpu: bool) -> str:
    """The precision to serve in: `auto` is bfloat16 where that is computed, float32 on other processors."""
    if dtype != "auto":
        return dtype
    return "float32" if cpu and not cpu_computes_bf16() else "bfloat16"


KEPT_MEMORY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(64 * 2**30),
    "MALLOC_TOP_PAD_": str(256 * 2**20),
    "THP_MEM_ALLOC_ENABLE": "1",
}
"""glibc and torch settings with which a process keeps the memory that it frees, in huge pages.

Otherwise every large tensor is mapped and zeroed anew. Measured with SmolLM2-135M on 2 cores: 5.6 instead of 10 s a
training step of 8 records, 14.5 instead of 16 s for 150 answers of vLLM (single runs).
"""


SHORT_WAIT = {"GOMP_SPINCOUNT": "1000"}
"""How long a thread of libgomp, which torch computes with on a processor, spins before it sleeps.

Unset, threads spin for milliseconds at every barrier and keep the cores from whatever runs beside them. Two
computations on two cores took 1.5 times as long without it (benchmarks/waiting.py), two trainings over three times
(docs/results/LOG.md, 2026-11-30); one alone takes up to 6 % longer with it.
"""
FEW_THREADS = 8
"""Threads of a process beside a card, where nobody set OMP_NUM_THREADS.

What is left for the processor there is small, and small work gains nothing from many threads: on a host of 64 cores
that four runs shared, each of them had 64, and they waited for each other (docs/results/LOG.md, 2026-11-30).
"""


def compute_environment() -> dict[str, str]:
    """Environment of a child that computes: `KEPT_MEMORY` and `SHORT_WAIT` on a processor, `FEW_THREADS` beside a card.

    How threads wait stays as the user said it.
    """
    if has_nvidia():
        few = min(FEW_THREADS, os.cpu_count() or 1)
        return {} if "OMP_NUM_THREADS" in os.environ else {"OMP_NUM_THREADS": str(few)}
    said = {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys()
    return {**KEPT_MEMORY, **({} if said else SHORT_WAIT)}


def has_nvidia() -> bool:
    """Whether an NVIDIA driver is there."""
    return Path("/dev/nvidiactl").exists()


def visible_devices() -> list[str]:
    """The NVIDIA cards that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    if not has_nvidia():
        return []
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is not None:
        return [name.strip() for name in said.split(",") if name.strip()]
    found = (re.fullmatch(r"nvidia(\d+)", path.name) for path in Path("/dev").iterdir())
    return [str(i) for i in range(sum(match is not None for match in found))]


def device_sets(engines: int, per_engine: int = 1) -> list[str | None]:
    """CUDA_VISIBLE_DEVICES of each engine; None where this machine has no accelerator, as for scripted engines.

    Raises InfrastructureError when there are too few devices.
    """
    devices = visible_devices()
    if not devices:
        return [None] * engines
    if engines * per_engine > len(devices):
        raise InfrastructureError(
            f"{engines} engines of {per_engine} devices need {engines * per_engine}; {len(devices)} are visible; "
            "lower compute.engines"
        )
    return [",".join(devices[i * per_engine : (i + 1) * per_engine]) for i in range(engines)]
