"""Finds a stage by its name, in whatever process asks."""

from reasoner.errors import UsageError
from tasks.stage import STAGES, Stage


def names() -> list[str]:
    """Every stage that there is, sorted."""
    import tasks.multiturn
    import tasks.planner
    import tasks.releases
    import tasks.smart
    import tasks.smart_records  # noqa: F401  (defining the stages registers them)

    return sorted(STAGES)


def find(name: str) -> Stage:
    """The stage `name`; UsageError names the stages that there are."""
    known = names()
    if name not in known:
        raise UsageError(f"no stage {name!r}; there are: {', '.join(known)}")
    return STAGES[name]
