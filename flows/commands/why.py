"""`reasoner why`: which inputs of a stage made it stale."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from reasoner.config.compose import names, nearest
from reasoner.errors import UsageError
from reasoner.home import Home
from reasoner.lineage import journal, why
from reasoner.lineage.calls import Call
from reasoner.lineage.known import run_folders


def add_to(app: typer.Typer) -> None:
    @app.command("why")
    def command(
        stage: Annotated[str, typer.Argument(help="A stage, such as train or few-shot")],
        what: Annotated[
            list[str] | None,
            typer.Argument(help="A pipeline with overrides, or a run; the newest run where nothing is given"),
        ] = None,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
    ) -> None:
        """Say which setting, input, version or environment makes a stage run, or made it run."""
        tell(stage, what or [], json)


def tell(stage: str, what: list[str], as_json: bool) -> None:
    """Print why each call of `stage` has to run: in a pipeline that is to be run, or in a run that was."""
    from flows.commands import prefect_settings

    prefect_settings.prepare()
    from tasks.registry import find

    known_stages = _stage_names()
    if stage not in known_stages:
        raise UsageError(
            f"no stage {stage!r}.{nearest(stage, known_stages)} There are: {', '.join(known_stages)}"
        )
    find(stage)
    name, *overrides = what or [""]
    if name in names():
        asked, stopped, question = _pipeline(stage, name, overrides)
    else:
        asked, stopped, question = _run(stage, name, overrides)
    answers = why.answers(Home.from_environment(), asked, question.calls, question.before)
    if as_json:
        rows = {
            "asked": question.name,
            "answers": [answer.to_row() for answer in answers],
            "stopped": stopped,
        }
        json.dump(rows, sys.stdout, indent=1, ensure_ascii=False)
        print()
        return
    for line in why.lines(answers):
        print(line)
    if stopped:
        print(f"the flow cannot be followed further without a run: {stopped}", file=sys.stderr)


@dataclass
class _Question:
    """Where the calls come from: their name, all calls there by which inputs are looked up, which artifacts count."""

    name: str
    calls: list[Call]
    before: str = ""
    """Only artifacts made before this moment were kept at the time; empty: all."""


def _stage_names() -> list[str]:
    from tasks.registry import names as all_names

    return all_names()


def _pipeline(stage: str, name: str, overrides: list[str]) -> tuple[list[why.Asked], str, _Question]:
    from flows.commands.pipelines import find
    from tasks.rehearsal import rehearse

    pipeline = find(name)
    pipeline.check(overrides)
    followed = rehearse(pipeline.flow(), name, overrides)
    asked = [a for a in followed.asked if a.call.stage == stage]
    if not asked:
        there = list(dict.fromkeys(a.call.stage for a in followed.asked))
        rest = f" ({followed.stopped})" if followed.stopped else ""
        raise UsageError(
            f"{name} does not call the stage {stage!r}{rest}.{nearest(stage, there)} It calls: {', '.join(there)}"
        )
    return asked, followed.stopped, _Question(name, [a.call for a in followed.asked])


def _run(stage: str, name: str, overrides: list[str]) -> tuple[list[why.Asked], str, _Question]:
    folder = _folder(name)
    if overrides:
        raise UsageError(f"overrides go with a pipeline, not with a run: {' '.join(overrides)}")
    rows = journal.read(folder)
    if not rows:
        raise UsageError(
            f"run {folder.name} kept no record of its stages (it was cut off before the first, or an older version "
            f"made it); ask for the pipeline instead: reasoner why {stage} PIPELINE"
        )
    mine = [row for row in rows if row.call.stage == stage]
    if not mine:
        there = list(dict.fromkeys(row.call.stage for row in rows))
        raise UsageError(
            f"run {folder.name} did not call the stage {stage!r}.{nearest(stage, there)} It called: {', '.join(there)}"
        )
    asked = [why.Asked(row.call, row.state) for row in mine]
    return asked, "", _Question(folder.name, [row.call for row in rows], before=min(row.at for row in mine))


def _folder(name: str) -> Path:
    from reasoner.audit.runs import find_run

    home = Home.from_environment()
    if not name:
        folders = run_folders(home)
        if not folders:
            raise UsageError(
                f"no runs in {home.runs}; name a pipeline: reasoner why STAGE PIPELINE [key=value …]"
            )
        return folders[0]
    try:
        return find_run(name, home)
    except UsageError as error:
        hint = nearest(name, [*names(), *(folder.name for folder in run_folders(home))])
        if not hint or "runs are called" in str(error):
            raise
        raise UsageError(f"no pipeline and no run {name!r}.{hint}") from None
