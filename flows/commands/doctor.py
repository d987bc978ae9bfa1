"""`reasoner doctor`: can a run work on this machine?"""

import json
import sys
from collections.abc import Iterable

from reasoner.doctor import Check, State, examine
from reasoner.home import Home


def doctor(as_json: bool) -> None:
    """Print every check as it is made; exit status 1 where something that a run needs is missing."""
    found: list[Check] = []
    for check in examine(Home.from_environment()):
        if not as_json:
            show(check, found)
        found.append(check)
    missing = [check for check in found if check.state is State.MISSING]
    if as_json:
        json.dump({"ok": not missing, "checks": [check.to_row() for check in found]}, sys.stdout, indent=1)
        print()
    else:
        print(f"\n{verdict(missing)}")
    sys.exit(1 if missing else 0)


def show(check: Check, before: Iterable[Check]) -> None:
    """One line, and one of advice; a heading where a group begins."""
    if all(other.group != check.group for other in before):
        print(check.group)
    mark = {State.OK: "ok     ", State.NOTE: "note   ", State.MISSING: "MISSING"}[check.state]
    print(f"  {mark} {check.name}: {check.detail}", flush=True)
    if check.advice:
        print(f"          -> {check.advice}", flush=True)


def verdict(missing: list[Check]) -> str:
    if not missing:
        return "a run can work here"
    return f"a run cannot work here: {', '.join(f'{check.group} {check.name}' for check in missing)}"
