"""One run in Weights & Biases: how it begins, what it takes, how it ends.

Online only with a key in WANDB_API_KEY (secrets come from the environment alone), else, or where W&B can't be reached,
offline in the run's folder, from where `wandb sync` sends it. What W&B says or fails to do never ends a run, and no
weights or code are uploaded.
"""

import importlib.util
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
    """Ties the trainings and the evaluation of one flow run together; empty for a run that stands alone."""
    folder: Path
    """Holds W&B's files, in `wandb/`."""
    name: str = ""
    run_id: str | None = None
    """The same id goes on with the same W&B run, after a crash for example."""
    job: str = ""

    @classmethod
    def of(cls, on: bool, project: str, group: str, folder: Path) -> "Tracking | None":
        """A run to be shown, or None where it is not `on`. Raises ConfigurationError where wandb is not installed."""
        if not on:
            return None
        if importlib.util.find_spec("wandb") is None:
            raise ConfigurationError(
                "W&B is asked for and the package wandb is missing: install the extra `wandb` "
                "(pip install 'reasoner[wandb]'), or don't ask for it"
            )
        return cls(project, group, folder)

    def run(self, name: str, job: str = "", run_id: str | None = None) -> "Tracking":
        """The W&B run `name` of this group."""
        return replace(self, name=name, job=job, run_id=run_id)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows to look at. A cell that is neither a number nor a text is shown as JSON."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Histogram:
    """How some numbers are distributed."""

    values: Sequence[float]


class Run:
    """What is shown of one run. Where W&B is off or broken, nothing is, and nobody has to ask."""

    def __init__(self, shown: Any = None, say: Log = print) -> None:
        """`shown` is a W&B run, or None."""
        self._shown, self._say = shown, say

    @property
    def on(self) -> bool:
        """Whether W&B has begun."""
        return self._shown is not None

    def log(self, values: Mapping[str, Any], step: int | None = None) -> None:
        """Numbers, tables and histograms by name, together: at `step`, or one after what was logged before."""
        self._send(lambda run: run.log({name: _sent(value) for name, value in values.items()}, step=step))

    def summarise(self, numbers: Mapping[str, float]) -> None:
        """Put numbers into the summary."""
        self._send(lambda run: run.summary.update(dict(numbers)))

    def _send(self, send: Callable[[Any], None]) -> None:
        if self._shown is None:
            return
        try:
            send(self._shown)
        except Exception as error:  # whatever it is, a run goes on without W&B
            self._say(f"W&B took not everything: {_line(error)}")


@contextmanager
def tracked(tracking: Tracking | None, log: Log, settings: Mapping[str, Any] | None = None) -> Iterator[Run]:
    """A W&B run around a block, with the `settings` that it shows; one that shows nothing for None.

    Integrations of other libraries find it as this process's run. It is marked as failed where the block fails.
    """
    shown = _begin(tracking, log, settings) if tracking is not None else None
    failed = True
    try:
        yield Run(shown, log)
        failed = False
    finally:
        if shown is not None:
            _finish(shown, failed, log)


def secrets() -> dict[str, str]:
    """The key and the address of W&B as the environment has them, for a child's environment."""
    names = (KEY, "WANDB_BASE_URL", "WANDB_ENTITY", "WANDB_MODE")
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def mode() -> str:
    """`online` with a key, `offline` without; WANDB_MODE may only make it less."""
    wanted = os.environ.get("WANDB_MODE") or "online"
    return "offline" if wanted == "online" and not os.environ.get(KEY) else wanted


def _begin(tracking: Tracking, log: Log, settings: Mapping[str, Any] | None) -> Any:
    """This process's W&B run; None if W&B can't even work offline."""
    where = tracking.folder / "wandb"
    where.mkdir(parents=True, exist_ok=True)
    wanted = mode()
    places = {"WANDB_DIR": tracking.folder}
    places |= dict.fromkeys(("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"), where)
    os.environ.update(FIXED | {name: str(path) for name, path in places.items()})
    if not os.environ.get("WANDB_MODE"):
        os.environ.pop("WANDB_MODE", None)  # wandb refuses an empty one
    for attempt in dict.fromkeys((wanted, "offline" if wanted == "online" else wanted)):
        try:
            import wandb

            run = wandb.init(
                project=tracking.project, group=tracking.group or None, name=tracking.name or None,
                id=tracking.run_id, job_type=tracking.job or None, dir=str(tracking.folder),
                config=dict(settings) if settings else None, mode=attempt,  # type: ignore[arg-type]
                resume="allow",
            )  # fmt: skip
        except Exception as error:
            log(f"W&B ({attempt}) does not start: {_line(error)}")
            continue
        log(f"W&B: {_shown(tracking)}, {_place(attempt, where)}")
        return run
    return None


def _finish(run: Any, failed: bool, log: Log) -> None:
    """End the run and wait until its files are written, before which `finish` alone returns."""
    try:
        import wandb

        run.finish(exit_code=1 if failed else 0)
        wandb.teardown()
    except Exception as error:
        log(f"W&B does not end well: {_line(error)}")


def _shown(tracking: Tracking) -> str:
    return ", ".join(
        filter(None, ("/".join(filter(None, (tracking.project, tracking.group))), tracking.name))
    )


def _place(attempt: str, where: Path) -> str:
    if attempt != "offline":
        return attempt
    missing = "" if os.environ.get(KEY) else f", no {KEY}"
    return f"offline{missing}: files in {where}, to be sent with `wandb sync`"


def _sent(value: Any) -> Any:
    """A value as wandb takes it."""
    import wandb

    if isinstance(value, Table):
        return wandb.Table(
            columns=list(value.columns), data=[[_cell(cell) for cell in row] for row in value.rows]
        )
    if isinstance(value, Histogram):
        return wandb.Histogram(list(value.values))
    return value


def _cell(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool) or value is None else json.dumps(value)


def _line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
