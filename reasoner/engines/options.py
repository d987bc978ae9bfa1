"""Options of an engine: only known names pass, and a mistyped one is told the nearest."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from reasoner.errors import ConfigurationError


def check_options(kind: str, options: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """A copy of `options`; raises ConfigurationError for the first name that is not in `known`."""
    names = sorted(known)
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
            hint = f"the nearest is {near[0]!r}" if near else f"it knows {', '.join(names[:8])}"
            raise ConfigurationError(f"the {kind} engine has no option {name!r}; {hint}")
    return dict(options)
