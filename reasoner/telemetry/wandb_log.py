"""Weights & Biases: metrics an iteration and episodes as tables; without a key it goes on offline and says so.

The key comes from WANDB_API_KEY or wandb's own login; nothing is stored here. Sending twice under one id continues one
run. Not covered: uploading weights.
"""

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from reasoner.config.multiturn import MultiTurnConfig
from reasoner.errors import ConfigurationError
from reasoner.methods.multiturn.episode import Episode
from reasoner.store.rows import iter_rows

MAX_ROWS = 200
"""Episodes of a table."""
COLUMNS = ("problem", "index", "attempt", "r1", "feedback", "refinement", "r2", "leak")


class WandbLog:
    """One W&B run. A context manager."""

    def __init__(
        self, config: MultiTurnConfig, run_id: str, say: Callable[[str], None], folder: Path
    ) -> None:
        """Raises ConfigurationError where wandb is not installed."""
        try:
            import wandb
        except ImportError:
            raise ConfigurationError(
                "use_wandb=true needs the package wandb: install reasoner[wandb], or set use_wandb=false"
            ) from None
        if not os.environ.get("WANDB_MODE"):
            os.environ.pop("WANDB_MODE", None)  # wandb refuses an empty one
        online = bool(os.environ.get("WANDB_API_KEY")) or _logged_in()
        mode: Any = os.environ.get("WANDB_MODE") or ("online" if online else "offline")
        if mode == "offline":
            say(
                f"W&B: no key (WANDB_API_KEY); going on offline in {folder / 'wandb'}, to be sent with `wandb sync`"
            )
        folder.mkdir(parents=True, exist_ok=True)
        self._wandb: Any = wandb
        self._run: Any = wandb.init(
            project=config.project_name, name=config.run_name, id=run_id, resume="allow", mode=mode, dir=str(folder),
            config=json.loads(config.model_dump_json()), settings=wandb.Settings(silent=True, console="off"),
        )  # fmt: skip

    def metrics(self, row: dict[str, Any]) -> None:
        """The numbers of one iteration, or of one validation, at its `step`."""
        step = int(row.get("step", 0))
        self._run.log({k: v for k, v in row.items() if k not in ("done", "total")} | {"iteration": step})

    def episodes(self, name: str, episodes: Sequence[Episode]) -> None:
        """A table of at most MAX_ROWS episodes."""
        table = self._wandb.Table(columns=list(COLUMNS), data=[table_row(e) for e in episodes[:MAX_ROWS]])
        self._run.log({name: table})

    def __enter__(self) -> "WandbLog":
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self._run.finish(exit_code=0 if kind is None else 1)


def send_finished(
    config: MultiTurnConfig,
    trained: Path,
    evaluation: Path,
    digest: str,
    folder: Path,
    say: Callable[[str], None],
) -> None:
    """Send what a finished training recorded: its metrics, its last rollout, its evaluation."""
    with WandbLog(config, digest[:16], say, folder) as log:
        send_folder(log, trained)
        log.episodes("evaluation", [Episode.from_row(r) for r in iter_rows(evaluation / "episodes.jsonl")])


def send_folder(log: WandbLog, trained: Path) -> None:
    """metrics.jsonl, and the last file of episodes/ and of validations/ as tables."""
    for row in iter_rows(trained / "metrics.jsonl"):
        log.metrics(row)
    send_tables(log, trained)


def send_tables(log: WandbLog, trained: Path) -> None:
    """The last rollout and the last validation of a result."""
    for name in ("episodes", "validations"):
        files = sorted((trained / name).glob("*.jsonl"))
        if files:
            log.episodes(name, [Episode.from_row(row) for row in iter_rows(files[-1])])


def table_row(episode: Episode) -> list[Any]:
    """An episode by COLUMNS."""
    second = episode.refinement.text if episode.refinement else None
    return [
        episode.problem_id, episode.index, episode.attempt.text, episode.r1, episode.advice, second, episode.r2,
        episode.leak,
    ]  # fmt: skip


def _logged_in() -> bool:
    """Whether wandb finds a key of its own (~/.netrc)."""
    import netrc

    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError):
        return False
