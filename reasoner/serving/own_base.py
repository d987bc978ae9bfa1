"""Whether an adapter belongs to a base: by the content of the base where the adapter's record has it, else by
name."""

import json
from dataclasses import dataclass
from pathlib import Path

from reasoner.config.smart import ModelConfig
from reasoner.errors import ModelError
from reasoner.home import Home
from reasoner.models import resolve
from reasoner.store import pointer
from reasoner.store.hashes import HashCache
from reasoner.store.manifest import content_digest
from reasoner.training.adapter import TRAINING, read_adapter


@dataclass(frozen=True, slots=True)
class Base:
    """A base on disk and the name and fingerprint that the adapter knows it by."""

    folder: Path
    name: str
    fingerprint: str


def base_of(adapter: Path, given: str | None, home: Home) -> Base:
    """The base of the adapter in folder `adapter`: the one that is `given`, else the one that it names.

    Raises ModelError where the folder is no adapter, or the base is another one.
    """
    named = str(read_adapter(adapter).get("base_model_name_or_path") or "")
    wanted = given or named
    if not wanted:
        raise ModelError(f"the adapter {adapter} does not name its base; give it with --base-model")
    folder = resolve(ModelConfig(path=wanted), home.path).folder
    recorded = _recorded(adapter)
    if recorded:
        if recorded not in _fingerprints(folder, home):
            raise ModelError(
                f"the adapter {adapter} was trained on other weights than {wanted}: on {named!r}, content "
                f"{recorded[:12]}…"
            )
    elif named and wanted != named and folder != _local(named):
        raise ModelError(f"the adapter {adapter} was trained on {named!r}, not on {wanted!r}")
    return Base(folder, named or wanted, recorded)


def _recorded(adapter: Path) -> str:
    """The base's fingerprint in the adapter's training.json; empty where there is none."""
    try:
        return str(json.loads((adapter / TRAINING).read_text(encoding="utf-8"))["base"]["fingerprint"] or "")
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _fingerprints(folder: Path, home: Home) -> set[str]:
    """Both of ours: a model folder's own, and its digest as an artifact, which a flow's trainings record."""
    from reasoner.models import fingerprint

    hashes = HashCache(home.path / "models" / "hashes.json")
    return {fingerprint(folder, home.path), content_digest(pointer.scan_outside(folder, hashes))}


def _local(name: str) -> Path | None:
    path = Path(name).expanduser()
    return path.resolve() if path.is_dir() else None
