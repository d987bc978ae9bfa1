"""Prompt data: a YAML file that ships with the package, by name, or a file of the user's, by path."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from reasoner.errors import ConfigurationError

FOLDER = Path(__file__).parent


def read_data(group: str, name: str) -> Any:
    """The content of `group`'s file `name`; a name with a slash or a YAML suffix is a path.

    Raises ConfigurationError where there is no such file, with the names that there are, or it is not YAML.
    """
    given = Path(name).expanduser()
    is_path = "/" in name or given.suffix in (".yaml", ".yml")
    path = given if is_path else FOLDER / group / f"{name}.yaml"
    if not path.is_file():
        if is_path:
            raise ConfigurationError(f"{group}: there is no file {path}")
        known = sorted(file.stem for file in (FOLDER / group).glob("*.yaml"))
        near = get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigurationError(
            f"{group}: there is none named {name!r}{hint} There are: {', '.join(known)}, or give a .yaml file"
        )
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path}: not YAML ({str(error).splitlines()[0]})") from None
