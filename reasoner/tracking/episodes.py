"""A multi-turn training in W&B: its metrics an iteration, and episodes as tables.

Sending twice under one id continues one run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.methods.multiturn.episode import Episode
from reasoner.store.rows import iter_rows
from reasoner.tracking.run import Log, Run, Table, Tracking, tracked

MAX_ROWS = 200
"""Episodes of a table."""
COLUMNS = ("problem", "index", "attempt", "r1", "feedback", "refinement", "r2", "leak")


def asked_for(config: MultiTurnConfig, folder: Path) -> Tracking | None:
    """The W&B run that `config` asks for, its files in `folder`. ConfigurationError where wandb is not installed."""
    found = Tracking.of(config.use_wandb, config.project_name, "", folder)
    return found and found.run(config.run_name or "")


def send_finished(
    tracking: Tracking, config: MultiTurnConfig, trained: Path, evaluation: Path, log: Log
) -> None:
    """Send what a finished training recorded: its metrics, its last rollout and validation, its evaluation."""
    with tracked(tracking, log, settings_of(config)) as run:
        for row in iter_rows(trained / "metrics.jsonl"):
            send_metrics(run, row)
        send_tables(run, trained)
        send_episodes(run, "evaluation", evaluation / "episodes.jsonl")


def settings_of(config: MultiTurnConfig) -> dict[str, Any]:
    """The configuration as W&B shows it."""
    return config.model_dump(mode="json")


def send_metrics(run: Run, row: dict[str, Any]) -> None:
    """The numbers of one iteration, or of one validation, at its `step`."""
    step = int(row.get("step", 0))
    run.log({k: v for k, v in row.items() if k not in ("done", "total")} | {"iteration": step})


def send_tables(run: Run, trained: Path) -> None:
    """The last rollout and the last validation of a result."""
    for name in ("episodes", "validations"):
        files = sorted((trained / name).glob("*.jsonl"))
        if files:
            send_episodes(run, name, files[-1])


def send_episodes(run: Run, name: str, file: Path) -> None:
    """A table of at most MAX_ROWS episodes."""
    run.log({name: table([Episode.from_row(row) for row in iter_rows(file)])})


def table(episodes: Sequence[Episode]) -> Table:
    """Episodes by COLUMNS."""
    return Table(COLUMNS, [_row(episode) for episode in episodes[:MAX_ROWS]])


def _row(episode: Episode) -> list[Any]:
    second = episode.refinement.text if episode.refinement else None
    return [
        episode.problem_id, episode.index, episode.attempt.text, episode.r1, episode.advice, second, episode.r2,
        episode.leak,
    ]  # fmt: skip
