"""Tells that a release has become worse: the log, a Prefect event, and a notification block where one is named."""

from typing import Any

from prefect import get_run_logger
from prefect.events import emit_event

from reasoner.releases.night import Night
from reasoner.releases.release import Release
from reasoner.releases.trend import sentence

EVENT = "reasoner.release.regressed"


def alarm(release: Release, night: Night, block: str) -> str:
    """Tell it in all three ways; returns the drop in words. A block that cannot be used is told in the log."""
    drops = [sentence(name, night.sets[name]) for name in night.worse]
    words = f"release {release.name} has become worse: {'; '.join(drops)}"
    get_run_logger().error(words)
    emit_event(
        EVENT,
        resource={
            "prefect.resource.id": f"reasoner.release.{release.name}",
            "prefect.resource.name": release.name,
            "reasoner.release.model": release.model.digest,
        },
        payload={
            "night": night.night,
            "alpha": night.alpha,
            "sets": {name: night.sets[name].to_row() for name in night.worse},
            "changed": list(night.notes),
        },
    )
    _notify(block, f"Reasoner: release {release.name} has become worse", words)
    return words


def _notify(block: str, subject: str, body: str) -> None:
    """Send it through the block `type/name`. The regression is what counts, so nothing is raised here."""
    logger = get_run_logger()
    if not block:
        logger.warning(
            "nobody was notified: no block is configured (notify=type/name, such as slack-webhook/oncall)"
        )
        return
    try:
        _send(block, subject, body)
    except Exception as error:
        logger.error("nobody was notified: block %r can't be used (%s)", block, str(error).splitlines()[0])
    else:
        logger.info("notified through %s", block)


def _send(block: str, subject: str, body: str) -> None:
    from prefect.blocks.abstract import NotificationBlock
    from prefect.blocks.core import Block

    found = _waited(Block.load(block))
    if not isinstance(found, NotificationBlock):
        raise TypeError(f"{type(found).__name__} is no notification block")
    with found.raise_on_failure():
        _waited(found.notify(body, subject))


def _waited(value: Any) -> Any:
    """The result, also where Prefect gives a coroutine."""
    from prefect.utilities.asyncutils import run_coro_as_sync

    return run_coro_as_sync(value) if hasattr(value, "__await__") else value
