"""Composes a named configuration with Hydra, applies dotted overrides and validates it with pydantic.

    config = load("smart-epoch2", ["train.lr=1e-5", "data=gsm8k", "model.path=./my-model"])

A mistyped key is a `ConfigurationError` that names the nearest key. Hydra only composes here: it sets up no
logging, no working folder and no application.
"""

import copy
import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from reasoner.config.base import Section
from reasoner.errors import ConfigurationError
from reasoner.redaction import find_secret

CONFIG_FOLDER = Path(__file__).resolve().parents[2] / "configs"

SectionT = TypeVar("SectionT", bound=Section)
BRANCH = re.compile(r"constrained-|literal\[")
"""How the name of one alternative of a field begins, which pydantic puts behind the field's own name."""


def names(folder: Path = CONFIG_FOLDER) -> list[str]:
    """The configurations that `load` accepts: the YAML files directly under `folder`."""
    return sorted(path.stem for path in folder.glob("*.yaml"))


def load(
    name: str, overrides: Iterable[str], section: type[SectionT], folder: Path = CONFIG_FOLDER
) -> SectionT:
    """The validated configuration `name` with `overrides` (`key.sub=value`, `group=option`) applied."""
    overrides = list(overrides)
    return validate(compose(name, overrides, folder, section), section, name)


def compose(name: str, overrides: Sequence[str], folder: Path, section: type[Section]) -> dict[str, Any]:
    """Plain data of a configuration, not yet validated."""
    known = names(folder)
    if name not in known:
        raise ConfigurationError(
            f"no configuration {name!r}.{nearest(name, known)} There are: {', '.join(known)}"
        )
    groups = sorted(path.name for path in folder.iterdir() if path.is_dir())
    prepared = tuple(_prepare(override, groups, section) for override in overrides)
    newest = max(path.stat().st_mtime_ns for path in folder.rglob("*.yaml"))
    return copy.deepcopy(_composed(name, prepared, folder, newest))


@functools.lru_cache(maxsize=16)
def _composed(name: str, prepared: tuple[str, ...], folder: Path, newest: int) -> dict[str, Any]:
    """By Hydra, in a fifth of a second; a run asks several times. `newest`: when a file of the folder last changed."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    try:
        with initialize_config_dir(str(folder), version_base="1.3"):
            composed = hydra_compose(name, overrides=list(prepared))
        plain = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
    except (HydraException, OmegaConfBaseException, YAMLError) as error:
        raise ConfigurationError(_hydra_message(name, error, folder)) from error
    if not isinstance(plain, dict):
        raise ConfigurationError(f"configuration {name!r} is not a mapping")
    _refuse_secrets(plain, name)
    return {str(key): value for key, value in plain.items()}


def _refuse_secrets(value: Any, where: str, key: str = "") -> None:
    """A configuration is stored with the run, in the server's database and in manifests: no secret may be in it."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            _refuse_secrets(name, where, key)
            _refuse_secrets(inner, where, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_secrets(inner, where, key)
    elif isinstance(value, str) and (found := find_secret(value)):
        raise ConfigurationError(
            f"configuration {where!r}: {key} holds {found}; take it out (and revoke it if others saw it). Secrets "
            "are read from the environment only: HF_TOKEN, WANDB_API_KEY"
        )


def validate(data: Mapping[str, Any], section: type[SectionT], where: str) -> SectionT:
    """`data` as a `section`; the first wrong key or value is named, with the nearest valid key."""
    try:
        return section.model_validate(data)
    except ValidationError as error:
        lines = [_explain(detail, section) for detail in error.errors()[:3]]
        raise ConfigurationError(f"configuration {where!r}: " + "; ".join(lines)) from error


def keys(section: type[Section], prefix: str = "") -> list[str]:
    """Every dotted key of a section and of the sections in it."""
    found = []
    for name, field in section.model_fields.items():
        found.append(prefix + name)
        inner = _inner_section(field.annotation)
        if inner is not None and get_origin(field.annotation) is not dict:
            found.extend(keys(inner, f"{prefix}{name}."))
    return found


def nearest(word: str, choices: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the closest choice, or an empty string."""
    choices = list(choices)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    if not close:
        # A dotted key: compare its last part too, so `train.learning` finds nothing but `few_shots.shots` does.
        last = {choice.rsplit(".", 1)[-1]: choice for choice in choices}
        match = difflib.get_close_matches(word.rsplit(".", 1)[-1], list(last), n=1, cutoff=0.6)
        close = [last[match[0]]] if match else []
    return f" Did you mean {close[0]!r}?" if close else ""


def _prepare(override: str, groups: Sequence[str], section: type[Section]) -> str:
    """Let a plain `key=value` set keys that the file does not mention, and refuse keys that nothing knows."""
    if override.startswith("~") and "=" not in override:  # Hydra's way to take a key away
        _known_or_raise(override[1:], section)
        return override
    match = re.match(r"^(\+{0,2}|~)([^=]+)=(.*)$", override, re.DOTALL)
    if match is None:
        raise ConfigurationError(f"{override!r} is not of the form key=value")
    mark, key, value = match.groups()
    if key in groups and not value.startswith("{"):
        return f"{key}={value}"
    _, at, place = key.rpartition("@")
    _known_or_raise(place, section)
    if at:  # Hydra's way to put a file of a group at a place: +data/source@data.evaluation.svamp=svamp
        return override if mark else f"+{override}"
    return override if mark else f"++{key}={value}"


def _known_or_raise(key: str, section: type[Section]) -> None:
    """Walk `key` down the sections; below a free mapping (`engine.options.x`) anything goes."""
    current: type[Section] | None = section
    free = False  # the next part is a free name in a mapping of sections
    for part in key.split("."):
        if current is None:
            return
        if free:
            free = False
            continue
        if part not in current.model_fields:
            beside = (
                [f"{key[: -len(part)]}{name}" for name in current.model_fields] if key.endswith(part) else []
            )
            raise ConfigurationError(f"no key {key!r}.{nearest(key, [*beside, *keys(section)])}")
        annotation = current.model_fields[part].annotation
        free = get_origin(annotation) is dict
        current = _inner_section(annotation)


def _inner_section(annotation: Any) -> type[Section] | None:
    """The section that a field holds: itself, or the values of a mapping of sections."""
    if get_origin(annotation) is dict:
        annotation = get_args(annotation)[1]
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return None


def _explain(detail: ErrorDetails, section: type[Section]) -> str:
    location = ".".join(str(part) for part in detail["loc"] if not BRANCH.match(str(part)))
    if detail["type"] == "extra_forbidden":
        return (
            f"no key {location!r}.{nearest(location, [*_siblings(detail['loc'], section), *keys(section)])}"
        )
    message = detail["msg"].removeprefix("Value error, ")
    given = detail.get("input")
    if detail["type"] in ("tuple_type", "list_type"):
        return f"{location}: must be a list, such as {location}=[{given if isinstance(given, str) else '…'}]"
    shown = f" (got {given!r})" if isinstance(given, str | int | float | bool) else ""
    return f"{location}: {message}{shown}" if location else message


def _siblings(location: tuple[int | str, ...], section: type[Section]) -> list[str]:
    """Dotted keys that stand beside `location`, also below a mapping of sections (`data.pool.NAME.…`)."""
    current: type[Section] | None = section
    parts = list(map(str, location[:-1]))
    for part in parts:
        if current is None or part not in current.model_fields:
            continue  # the free name in a mapping of sections
        current = _inner_section(current.model_fields[part].annotation)
    return [".".join([*parts, name]) for name in current.model_fields] if current else []


def _hydra_message(name: str, error: Exception, folder: Path) -> str:
    text = " ".join(str(error).split())
    key = getattr(error, "full_key", None)
    if key and "Missing mandatory value" in text:
        return f"configuration {name!r} needs a value: set {key}=… on the command line"
    option = re.search(r"In '[^']*': Could not find '(\w+)/([^']+)'|Could not find '(\w+)/([^']+)'", text)
    if option:
        group, wanted = (option.group(1) or option.group(3)), (option.group(2) or option.group(4))
        there = sorted(path.stem for path in (folder / group).glob("*.yaml"))
        return f"no option {wanted!r} of {group!r}.{nearest(wanted, there)} There are: {', '.join(there)}"
    return f"configuration {name!r}: {text}"
