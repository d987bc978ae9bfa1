"""Weights & Biases, off unless it is asked for: training through TRL's integration, evaluations by `log_tables`.

Online only with WANDB_API_KEY in the environment, else (or where W&B can't be reached) offline in the run's folder,
from where `wandb sync` sends it. What W&B says or fails to do never ends a run, and no weights or code are uploaded.

Not covered: reading anything back from W&B.
"""

import importlib.util
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reasoner.config.tracking import TrackingConfig
from reasoner.errors import ConfigurationError

KEY = "WANDB_API_KEY"
FIXED = {
    "WANDB_SILENT": "true",
    "WANDB_CONSOLE": "off",
    "WANDB_LOG_MODEL": "false",
    "WANDB_WATCH": "false",
    "WANDB_DISABLE_GIT": "true",
    "WANDB_DISABLE_CODE": "true",
    "WANDB_ERROR_REPORTING": "false",
}

Log = Callable[[str], None]


@dataclass(frozen=True)
class Tracking:
    """One W&B run: where it belongs, where its files lie, what it is called. Holds no key."""

    project: str
    group: str
    """Ties the trainings and the evaluation of one flow run together."""
    folder: Path
    """Holds W&B's files, in `wandb/`."""
    name: str = ""
    run_id: str | None = None
    """The same id goes on with the same W&B run, after a crash for example."""
    job: str = ""

    @classmethod
    def of(cls, config: TrackingConfig, group: str, folder: Path) -> "Tracking | None":
        """What `config` asks for, or None. Raises `ConfigurationError` where wandb is not installed."""
        if not config.wandb:
            return None
        if importlib.util.find_spec("wandb") is None:
            raise ConfigurationError("tracking.wandb=true needs the package wandb: install the extra `wandb`")
        return cls(config.project, group, folder)

    def run(self, name: str, job: str, run_id: str | None = None) -> "Tracking":
        """The W&B run `name` of this group."""
        return replace(self, name=name, job=job, run_id=run_id)


def secrets() -> dict[str, str]:
    """The key and the address of W&B as the environment has them, for a child's environment."""
    names = (KEY, "WANDB_BASE_URL", "WANDB_ENTITY", "WANDB_MODE")
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def mode() -> str:
    """`online` with a key, `offline` without; WANDB_MODE may only make it less."""
    wanted = os.environ.get("WANDB_MODE") or "online"
    return "offline" if wanted == "online" and not os.environ.get(KEY) else wanted


def begin(tracking: Tracking, log: Log) -> bool:
    """Start this process's W&B run; False if W&B can't even work offline. Its integrations then find the run."""
    where = tracking.folder / "wandb"
    where.mkdir(parents=True, exist_ok=True)
    places = {"WANDB_DIR": tracking.folder}
    places |= dict.fromkeys(("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"), where)
    os.environ.update(FIXED | {name: str(path) for name, path in places.items()})
    wanted = mode()
    for attempt in dict.fromkeys((wanted, "offline" if wanted == "online" else wanted)):
        try:
            import wandb

            wandb.init(
                project=tracking.project, group=tracking.group, name=tracking.name or None, id=tracking.run_id,
                job_type=tracking.job or None, dir=str(tracking.folder), mode=attempt,  # type: ignore[arg-type]
                resume="allow",
            )  # fmt: skip
        except Exception as error:  # whatever it is, a run goes on without W&B
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            log(f"W&B ({attempt}) does not start: {reason}")
            continue
        place = {"online": "online", "offline": f"offline, files in {where}"}.get(attempt, attempt)
        log(f"W&B: {tracking.project}/{tracking.group}, {tracking.name}, {place}")
        return True
    return False


def finish(log: Log) -> None:
    """End this process's W&B run, if there is one, and wait until its files are written.

    `wandb.finish` alone returns before that.
    """
    try:
        import wandb

        wandb.finish()
        wandb.teardown()
    except Exception as error:
        log(f"W&B does not end well: {type(error).__name__}")


@contextmanager
def tracked(tracking: Tracking | None, log: Log) -> Iterator[bool]:
    """A W&B run around a block; whether there is one."""
    on = tracking is not None and begin(tracking, log)
    try:
        yield on
    finally:
        if on:
            finish(log)


def numbers(value: Any, name: str = "") -> dict[str, float]:
    """Every number in nested mappings and lists, under names joined by `/`; a row's `label` names it in a list."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return {}
    if isinstance(value, int | float):
        return {name: float(value)}
    if isinstance(value, Mapping):
        items = [(str(key), part) for key, part in value.items()]
    else:
        items = [
            (str(p.get("label", i)) if isinstance(p, Mapping) else str(i), p) for i, p in enumerate(value)
        ]
    found: dict[str, float] = {}
    for key, part in items:
        found |= numbers(part, f"{name}/{key}" if name else key)
    return found


def log_tables(tracking: Tracking | None, tables: Mapping[str, Any], log: Log) -> None:
    """Put every number of `tables` into the summary of one W&B run of evaluations."""
    with tracked(tracking, log) as on:
        if on:
            try:
                import wandb

                if wandb.run is not None:
                    wandb.run.summary.update(numbers(tables))
            except Exception as error:
                log(f"W&B took no evaluation: {type(error).__name__}")
