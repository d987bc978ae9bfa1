"""`reasoner`: the command line. Each command's work is in a module of flows/commands, imported when it is called.

Exit status 0 done, 1 the run failed, 2 wrong usage. Errors are one or two lines; `--debug` shows the traceback.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.ending import INTERRUPTED, WORDS, settle, status_of
from reasoner.errors import ReasonerError
from reasoner.home import Home
from reasoner.redaction import install, redact
from reasoner.trouble import machine_trouble

app = typer.Typer(
    name="reasoner",
    help="Trains language models to reason: SMART, a GRPO planner and multi-turn methods, as Prefect flows.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Overrides = Annotated[
    list[str] | None, typer.Argument(help="Dotted overrides, such as train.lr=1e-5 data=gsm8k")
]
Json = Annotated[bool, typer.Option("--json", help="Machine-readable output")]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and Prefect's own log")] = False,
) -> None:
    if debug:
        os.environ["REASONER_DEBUG"] = "1"


@app.command()
def run(
    name: Annotated[str, typer.Argument(help="A pipeline, such as smart-epoch2 or smart-demo")],
    overrides: Overrides = None,
    remote: Annotated[bool, typer.Option("--remote", help="Send it to the deployment and follow it")] = False,
) -> None:
    """Run a pipeline; the same command again makes only what is still owed."""
    from flows.commands import run as command

    command.run(name, overrides or [], remote)


@app.command()
def plan(
    name: Annotated[str, typer.Argument(help="A pipeline; with --actual a run's id, name or folder")],
    overrides: Overrides = None,
    price: Annotated[float | None, typer.Option(min=0, help="EUR an hour, for the cost")] = None,
    json: Json = False,
    calibrate: Annotated[bool, typer.Option("--calibrate", help="First measure this machine")] = False,
    check: Annotated[bool, typer.Option("--check", help="Try the gates before a training")] = False,
    actual: Annotated[bool, typer.Option("--actual", help="Predicted beside what a run took")] = False,
    device: Annotated[
        str | None, typer.Option(help="h100, h200, a100, 4090, l4 or cpu; this machine's by default")
    ] = None,
) -> None:
    """Say what a run would make, take and cost, and whether it fits; nothing is run."""
    from flows.commands import plan as command

    command.plan(name, overrides or [], price, json, calibrate, check, actual, device)


@app.command()
def up(port: Annotated[int, typer.Option(min=1, max=65535, help="The server's port")] = 4200) -> None:
    """Start a server, pools, deployments and workers; repeatable."""
    from flows.commands import services

    services.up(port)


@app.command()
def down() -> None:
    """End what `reasoner up` started."""
    from flows.commands import services

    services.down()


@app.command()
def runs(json: Json = False) -> None:
    """List the runs in the home folder."""
    from flows.commands import listing

    listing.runs(json)


@app.command()
def verify(
    kind: Annotated[str, typer.Argument(help="math or code")],
    file: Annotated[Path, typer.Argument(help="JSON Lines; `-` reads standard input")],
    workers: Annotated[int | None, typer.Option(help="Processes at once; one a core by default")] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Wall-clock seconds a row: 5 for math, 10 for code")
    ] = None,
) -> None:
    """Print a verdict a row: the row plus outcome, reason, extracted and seconds."""
    from flows.commands import verdicts

    verdicts.verify(kind, file, workers, timeout)


@app.command()
def doctor(json: Json = False) -> None:
    """Say whether a run can work on this machine, and what to do where it cannot."""
    from flows.commands import doctor as command

    command.doctor(json)


@app.command("audit-rewards")
def audit_rewards(
    run: Annotated[str, typer.Argument(help="A run's id or name, a beginning of either, or its folder")],
    json: Json = False,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many attempts, always the same ones")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes at once; one a core by default")
    ] = None,
) -> None:
    """Judge a run's attempts again, ask a second opinion, and say where rewards may be wrong."""
    from flows.commands import audit

    audit.audit_rewards(run, json, limit, workers)


def add_commands() -> None:
    """The commands that stand in modules of their own."""
    from flows.commands import (
        compare,
        evaluate,
        gc,
        lineage,
        planner_steps,
        releases,
        report,
        smart_steps,
        train,
        why,
    )

    gc.add_to(app)
    lineage.add_to(app)
    why.add_to(app)
    report.add_to(app)
    smart_steps.add_to(app)
    planner_steps.add_to(app)
    train.add_to(app)
    releases.add_to(app)
    compare.add_to(app)
    evaluate.add_to(app)


def main() -> None:
    """Entry point of the console script."""
    try:
        _command()
    except SystemExit as end:
        settle(int(end.code or 0))
        raise
    settle(0)


def _command() -> None:
    """Run what the command line says; ends with SystemExit unless all went well."""
    _check_siblings()
    install()
    try:
        add_commands()
        if app(standalone_mode=False) == INTERRUPTED:  # typer's word for Ctrl-C
            _fail(WORDS[INTERRUPTED], INTERRUPTED)
    except ReasonerError as error:
        _fail(str(error), error.exit_code)
    except typer.Exit as stop:
        sys.exit(stop.exit_code)
    except Exception as error:  # the last line of defence: a bug of ours, still told in a line
        _other(error)
    except BaseException as ending:
        status = status_of(ending)
        if status is None:
            raise
        _fail(WORDS[status], status)


def _other(error: Exception) -> None:
    """Click's usage errors keep their words and status 2; the machine's refusals are told; the rest are our bugs."""
    show = getattr(error, "format_message", None)
    if show is not None:
        path = getattr(getattr(error, "ctx", None), "command_path", "")
        help_words = f" (reasoner{path[len(path.split()[0]) :]} --help)" if path else ""
        _fail(f"{show().rstrip('.')}{help_words}", getattr(error, "exit_code", 2))
    trouble = machine_trouble(error, Home.from_environment().path)
    if trouble is not None:
        _fail(str(trouble), trouble.exit_code)
    _fail(f"{type(error).__name__}: {error} (a bug of ours; --debug shows where)", 1)


def _fail(message: str, status: int) -> None:
    if os.environ.get("REASONER_DEBUG"):
        import traceback

        print(redact(traceback.format_exc()), file=sys.stderr)
    print(redact(f"reasoner: {message}"), file=sys.stderr)
    sys.exit(status)


def _check_siblings() -> None:
    """`tasks` and `reasoner` must be this project's own; both names are common."""
    import importlib.util

    here = Path(__file__).resolve().parents[1]
    for name in ("tasks", "reasoner"):
        found = importlib.util.find_spec(name)
        place = Path(found.origin).resolve() if found and found.origin else None
        if place is None or here not in place.parents:
            _fail(f"the package {name!r} is {place}, not this project's; remove it from this environment", 1)


if __name__ == "__main__":
    main()
