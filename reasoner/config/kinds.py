"""Which section a named configuration is validated by: its `method` says so.

A file states `method` itself or takes it from the configuration that its `defaults` name first.
"""

from pathlib import Path

import yaml

from reasoner.config.base import Section
from reasoner.config.compose import CONFIG_FOLDER, names, nearest
from reasoner.errors import ConfigurationError

MULTI_TURN = ("mlmt", "rl_guided", "score", "archer")


def method_of(name: str, folder: Path = CONFIG_FOLDER) -> str:
    """The method of a configuration. Raises ConfigurationError for an unknown name or a file that is not YAML."""
    known = names(folder)
    if name not in known:
        raise ConfigurationError(
            f"no configuration {name!r}.{nearest(name, known)} There are: {', '.join(known)}"
        )
    try:
        data = yaml.safe_load((folder / f"{name}.yaml").read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"configuration {name!r}: not YAML ({str(error).splitlines()[0]})") from None
    if not isinstance(data, dict):
        raise ConfigurationError(f"configuration {name!r} is not a mapping")
    if "method" in data:
        return str(data["method"])
    parents = [d for d in data.get("defaults", []) if isinstance(d, str) and d != "_self_"]
    return method_of(parents[0], folder) if parents else "smart"


def section_of(name: str, folder: Path = CONFIG_FOLDER) -> type[Section]:
    """The section class of a configuration. Raises ConfigurationError for a method that nothing knows."""
    method = method_of(name, folder)
    if method == "smart":
        from reasoner.config.smart import SmartConfig

        return SmartConfig
    if method in MULTI_TURN:
        from reasoner.config.multiturn import MultiTurnConfig

        return MultiTurnConfig
    if method == "planner":
        from reasoner.config.planner import PlannerConfig

        return PlannerConfig
    if method == "nightly":
        from reasoner.config.releases import NightlyConfig

        return NightlyConfig
    if method == "publish":
        from reasoner.config.releases import PublishingConfig

        return PublishingConfig
    raise ConfigurationError(f"configuration {name!r}: no method {method!r}")
