"""Finds a stage by its name, in whatever process asks."""

from reasoner.errors import UsageError
from tasks.stage import STAGES, Stage


def find(name: str) -> Stage:
    """The stage `name`; UsageError names the stages that there are."""
    import tasks.multiturn
    import tasks.planner
    import tasks.releases
    import tasks.smart
    import tasks.smart_records  # noqa: F401  (defining the stages registers them)

    if name not in STAGES:
        raise UsageError(f"no stage {name!r}; there are: {', '.join(sorted(STAGES))}")
    return STAGES[name]
