"""Which configuration belongs to a pipeline: its file names the method, and the method its section."""

from collections.abc import Iterable
from pathlib import Path

from reasoner.config.base import Section
from reasoner.config.compose import CONFIG_FOLDER, compose, validate
from reasoner.config.planner import PlannerConfig
from reasoner.config.smart import SmartConfig
from reasoner.errors import ConfigurationError

SECTIONS: dict[str, type[Section]] = {"smart": SmartConfig, "planner": PlannerConfig}


def method_of(name: str, folder: Path = CONFIG_FOLDER) -> str:
    """The method of the pipeline `name`; SMART's files need not say it. Raises ConfigurationError."""
    method = str(compose(name, [], folder, Section).get("method", "smart"))
    if method not in SECTIONS:
        raise ConfigurationError(
            f"configuration {name!r}: no method {method!r}; there are: {', '.join(SECTIONS)}"
        )
    return method


def load_pipeline(name: str, overrides: Iterable[str] = (), folder: Path = CONFIG_FOLDER) -> Section:
    """The validated configuration of any pipeline, of its method's type."""
    section = SECTIONS[method_of(name, folder)]
    return validate(compose(name, list(overrides), folder, section), section, name)
