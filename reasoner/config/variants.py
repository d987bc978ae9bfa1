"""A SMART configuration and its variants: each is the same configuration with some overrides of its own."""

from collections.abc import Sequence
from pathlib import Path

from reasoner.config.compose import CONFIG_FOLDER, load
from reasoner.config.smart import SmartConfig
from reasoner.errors import ConfigurationError

SHARED = ("model", "data", "seed", "few_shot")
"""Sections that all variants must have alike: their answers are compared question by question."""


def load_variants(
    name: str, overrides: Sequence[str], folder: Path = CONFIG_FOLDER
) -> tuple[SmartConfig, dict[str, SmartConfig]]:
    """The configuration `name` and its `variants` by name. ConfigurationError names the variant that is wrong."""
    config = load(name, overrides, SmartConfig, folder)
    found = {}
    for label, words in config.variants.items():
        try:
            variant = load(name, [*overrides, *words], SmartConfig, folder)
        except ConfigurationError as error:
            raise ConfigurationError(f"variant {label!r}: {error}") from error
        for section in SHARED:
            if getattr(variant, section) != getattr(config, section):
                raise ConfigurationError(
                    f"variant {label!r} changes {section!r}, which all variants of a run share; run it by itself"
                )
        found[label] = variant
    return config, found
