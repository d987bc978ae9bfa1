"""Reads what the command line says into an `EvaluateConfig`."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import yaml

from reasoner.config.compose import CONFIG_FOLDER, nearest, validate
from reasoner.config.data import FILE_SUFFIXES
from reasoner.config.evaluate import EvaluateConfig
from reasoner.errors import ConfigurationError, UsageError
from reasoner.models import PACKAGE, is_hub_id


def read_request(
    model: str,
    data: str,
    engine: str,
    given: Mapping[str, Any],
    overrides: Sequence[str],
    folder: Path = CONFIG_FOLDER,
) -> EvaluateConfig:
    """`given` and `overrides` are dotted keys; the latter, `key=value`, win. Raises UsageError and
    ConfigurationError, with the nearest key or name."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    start: dict[str, Any] = {"model": {"path": model}, "data": _source(data, folder)}
    _require_model(model)
    if not model.startswith(("http://", "https://")):
        start["engine"] = _named(folder / "engine", _engine() if engine == "auto" else engine, "engine")
    words = [word for word in overrides if "=" in word]
    if len(words) < len(overrides):
        wrong = next(word for word in overrides if "=" not in word)
        raise UsageError(f"{wrong!r} is not of the form key=value")
    try:
        merged: Any = OmegaConf.create(start)
        for key, value in given.items():
            OmegaConf.update(merged, key, value)
        merged = OmegaConf.merge(merged, OmegaConf.from_dotlist(words))
        plain = OmegaConf.to_container(merged, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigurationError(f"evaluate: {str(error).splitlines()[0]}") from None
    assert isinstance(plain, dict)
    return validate({str(key): value for key, value in plain.items()}, EvaluateConfig, "evaluate")


def _source(data: str, folder: Path) -> dict[str, Any]:
    """A file, a Hub id, or a source by name."""
    names = sorted(path.stem for path in (folder / "data" / "source").glob("*.yaml"))
    if not data:
        raise UsageError(f"give --data: a file, a Hub id, or one of {', '.join(names)}")
    if PurePath(data).suffix.lower() in FILE_SUFFIXES:
        if not Path(data).expanduser().is_file():
            raise UsageError(f"--data {data}: there is no such file; or give one of {', '.join(names)}")
        return {"name": PurePath(data).stem, "kind": "file", "path": data}
    if data.count("/") == 1:
        return {"name": data.split("/")[1], "kind": "hub", "path": data}
    return {"name": data, **_named(folder / "data" / "source", data, "data set")}


def _require_model(model: str) -> None:
    """UsageError for a word that is neither here nor an address, a package's file or a Hub's `owner/name`."""
    elsewhere = model.startswith(("http://", "https://", PACKAGE)) or is_hub_id(model)
    if not elsewhere and not Path(model).expanduser().exists():
        raise UsageError(
            f"no model {model!r} here: give a folder with config.json, a tokenizer and weights, an adapter's folder, a "
            f"file.gguf, {PACKAGE}NAME/FILE.gguf, a Hub id (owner/name) or http(s)://…/v1"
        )


def _named(folder: Path, name: str, what: str) -> dict[str, Any]:
    names = sorted(path.stem for path in folder.glob("*.yaml"))
    if name not in names:
        raise UsageError(f"no {what} {name!r}.{nearest(name, names)} There are: {', '.join(names)}")
    return dict(yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8")))


def _engine() -> str:
    """What this machine has: vLLM on a card, vLLM's CPU build, or transformers."""
    if importlib.util.find_spec("vllm") is None:
        return "transformers"
    from reasoner.engines.vllm_settings import is_cpu_build

    return "vllm_cpu" if is_cpu_build() else "vllm"
