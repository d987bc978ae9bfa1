"""What a user adds without changing this project: a function by its dotted path, strategies from a YAML file.

`module:name` in a configuration is imported from the environment or from the working directory, in this process and in
every child. It is code of the user's own configuration and runs with the user's rights. Strategies are data: the file
that the environment variable REASONER_STRATEGIES names is read once, when `reasoner.records` is imported, because the
names belong to types; children inherit the variable. docs/extending.md has an example of each.
"""

import importlib
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reasoner.errors import ConfigurationError

VARIABLE = "REASONER_STRATEGIES"
VALUE = re.compile(r"[a-z][a-z0-9]*")
DOTTED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class AddedStrategy:
    """A strategy of prose, judged by its last number like Chain of Thought."""

    value: str
    title: str
    ends: tuple[str, ...]


def is_dotted(text: str) -> bool:
    """Whether this is `module:name`."""
    return bool(DOTTED.fullmatch(text))


def load_function(path: str, key: str) -> Callable[..., Any]:
    """The function at `module:name`; `key` is the setting that named it. Raises ConfigurationError."""
    if not is_dotted(path):
        raise ConfigurationError(f"{key}={path}: write module:name")
    module, _, name = path.partition(":")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, SyntaxError) as error:
        raise ConfigurationError(
            f"{key}={path}: cannot be imported ({error}); run in its folder, or set PYTHONPATH"
        ) from None
    if not callable(found):
        raise ConfigurationError(f"{key}={path}: {name} is not a function")
    function: Callable[..., Any] = found
    return function


def source_hash(path: str, key: str) -> str:
    """The hash of the file of `module:name`, so that a changed function is another key."""
    from reasoner.ids import file_hash

    function = load_function(path, key)
    file = getattr(sys.modules[function.__module__], "__file__", None)
    return file_hash(Path(file)) if file else ""


def added_strategies() -> tuple[AddedStrategy, ...]:
    """The strategies of the file in REASONER_STRATEGIES; none where it is unset. Raises ConfigurationError."""
    name = os.environ.get(VARIABLE)
    if not name:
        return ()
    import yaml

    try:
        data = yaml.safe_load(Path(name).expanduser().read_text(encoding="utf-8"))
        rows = dict(data["strategies"])
        found = tuple(
            AddedStrategy(v, str(r["title"]), tuple(r.get("ends", ("\n\n",)))) for v, r in rows.items()
        )
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError, AttributeError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise ConfigurationError(
            f"{VARIABLE}={name}: not a file of strategies, each with a title ({type(error).__name__}: {first})"
        ) from None
    for strategy in found:
        if (
            not VALUE.fullmatch(strategy.value)
            or strategy.value in ("cot", "sub", "pot")
            or ":" in strategy.title
        ):
            raise ConfigurationError(
                f"{VARIABLE}={name}: {strategy.value!r} must be a new word of small letters, its title without a colon"
            )
    return found
