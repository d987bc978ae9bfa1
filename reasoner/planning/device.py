"""What a device computes and moves a second, at best, and what it holds.

Figures of cards are the makers': dense bfloat16 without sparsity, float32 accumulation. A CPU's are measured by
`reasoner.planning.benchmark`.
"""

import os
from dataclasses import dataclass

from reasoner.errors import UsageError
from reasoner.records import Record

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Device(Record):
    """One device. `memory` is what a program can use, in bytes; 0 is unknown."""

    name: str
    flops: float
    """Dense multiply-adds count as two, a second."""
    bandwidth: float
    """Bytes a second between memory and cores."""
    memory: int
    step_floor: float
    """Seconds that one forward pass takes at least, whatever the model: launches and Python."""

    @property
    def is_cpu(self) -> bool:
        return self.name == "cpu"


CARDS = {
    "h100": Device("h100", 989e12, 3.35e12, 79 * GIB, 1e-3),
    "h200": Device("h200", 989e12, 4.8e12, 139 * GIB, 1e-3),
    "a100": Device("a100", 312e12, 2.04e12, 79 * GIB, 1e-3),
    "4090": Device("4090", 165e12, 1.008e12, int(23.6 * GIB), 1e-3),
    "l4": Device("l4", 121e12, 0.3e12, int(22.5 * GIB), 1e-3),
}
CPU_CORE_FLOPS, CPU_BANDWIDTH, CPU_FLOOR = 17e9, 10e9, 5e-3
"""A CPU that was not measured: float32 on AVX2 a core (34 GFLOP/s were seen on two), and a modest memory."""


def host_memory() -> tuple[int, int]:
    """(total, available) bytes of this machine; a container's own limit counts where it is lower."""
    import psutil

    from reasoner.doctor.machine import container_limit

    found = psutil.virtual_memory()
    limit = container_limit() or found.total
    total = min(found.total, limit)
    return total, min(found.available, total)


def unmeasured_cpu() -> Device:
    """This machine's CPU by rule of thumb, until `reasoner plan --calibrate` has measured it."""
    cores = len(os.sched_getaffinity(0))
    return Device("cpu", CPU_CORE_FLOPS * cores, CPU_BANDWIDTH, host_memory()[0], CPU_FLOOR)


def card_named(text: str) -> Device | None:
    """The card of the table that a driver's name means, such as `NVIDIA A100-SXM4-80GB`."""
    plain = text.lower().replace(" ", "")
    found = [device for name, device in CARDS.items() if name in plain]
    return max(found, key=lambda device: len(device.name), default=None)


def find(name: str) -> Device:
    """The device `name` of the table. UsageError names those that there are."""
    if name == "cpu":
        return unmeasured_cpu()
    if name not in CARDS:
        raise UsageError(f"no device {name!r}; there are: cpu, {', '.join(CARDS)}")
    return CARDS[name]
