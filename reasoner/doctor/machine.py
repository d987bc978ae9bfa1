"""The processor, the accelerator, the precision that will be served, memory, disk and the home folder."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from reasoner.doctor.check import Check, State
from reasoner.hardware import cpu_computes_bf16, served_dtype
from reasoner.home import Home

TORCH_SECONDS = 180.0
GIB = 1 << 30
FEW_GIB, TOO_FEW_GIB = 20, 1
"""Free disk: a run of a model with 1.5B parameters and two epochs leaves about 10 GiB, the demo about 1."""
LITTLE_GIB = 3
"""Free memory: training the demo's model takes about 2 GiB beside its engine."""

_ASK_TORCH = """
import json, torch
found = []
if torch.cuda.is_available():
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        found.append({"name": p.name, "memory": p.total_memory, "bf16": torch.cuda.is_bf16_supported()})
print(json.dumps({"devices": found, "cuda": torch.version.cuda}))
"""


def processor_and_accelerator() -> Iterator[Check]:
    """The processor, what torch computes on, and in which precision vLLM will serve."""
    cores, bf16 = len(os.sched_getaffinity(0)), cpu_computes_bf16()
    yield Check("machine", "processor", State.OK,
                f"{_processor()}, {cores} cores, {'with' if bf16 else 'without'} bfloat16 instructions")  # fmt: skip
    try:
        facts = ask_torch()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        yield Check("machine", "torch", State.MISSING, f"cannot be imported: {_last_line(error)}",
                    "install the lock again (make install or make cuda)")  # fmt: skip
        return
    devices = facts["devices"]
    if devices:
        names = ", ".join(f"{d['name']} ({d['memory'] / GIB:.0f} GiB)" for d in devices)
        yield Check("machine", "accelerator", State.OK, names)
    elif facts["cuda"]:
        yield Check("machine", "accelerator", State.NOTE, f"none, and torch is built for CUDA {facts['cuda']}",
                    "look at nvidia-smi; without a card install locks/cpu.lock (make install)")  # fmt: skip
    else:
        yield Check("machine", "accelerator", State.OK, "none; torch is built for the CPU")
    yield Check(
        "machine", "served precision", State.OK, f"{served_dtype('auto', not devices)} (engine.dtype=auto)"
    )


def ask_torch() -> dict[str, Any]:
    """What torch sees, asked in a child: a broken installation must not end the doctor."""
    child = subprocess.run(
        [sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, check=True, timeout=TORCH_SECONDS
    )
    return dict(json.loads(child.stdout.strip().splitlines()[-1]))


def _last_line(error: Exception) -> str:
    said = getattr(error, "stderr", None)
    lines = (
        (said if isinstance(said, str) else "").strip().splitlines()
        or str(error).splitlines()
        or [repr(error)]
    )
    return lines[-1][:200]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else os.uname().machine


def memory() -> Iterator[Check]:
    """What is free now; a container's own limit counts where it is lower."""
    found = psutil.virtual_memory()
    limit = container_limit()
    total = min(found.total, limit or found.total)
    free = min(found.available, total)
    little = free < LITTLE_GIB * GIB
    yield Check("machine", "memory", State.NOTE if little else State.OK,
                f"{free / GIB:.1f} GiB free of {total / GIB:.1f}",
                "free some, or take a smaller model" if little else "")  # fmt: skip


def container_limit(path: Path = Path("/sys/fs/cgroup/memory.max")) -> int | None:
    """The memory limit of this control group in bytes, or None."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no cgroup v2, or the word `max`
        return None


def home_folder(home: Home) -> Iterator[Check]:
    """Whether the home folder can be written to, and the space on its disk. The folder is not created."""
    there = next(folder for folder in (home.path, *home.path.parents) if folder.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=there, prefix=".reasoner-doctor-") as probe:
            probe.write(b"x")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        yield Check("home", "folder", State.MISSING, f"{home.path} cannot be written: {error.strerror}",
                    "set REASONER_HOME to a folder of yours")  # fmt: skip
        return
    yield Check(
        "home", "folder", State.OK, f"{home.path}{'' if there == home.path else ' (will be created)'}"
    )
    yield Check("home", "store", State.OK, home.artifacts)
    free = shutil.disk_usage(there).free / GIB
    state = State.MISSING if free < TOO_FEW_GIB else State.NOTE if free < FEW_GIB else State.OK
    yield Check("home", "disk", state, f"{free:.1f} GiB free",
                "" if state is State.OK else "free some, or set REASONER_HOME to a larger disk")  # fmt: skip
