"""What runs have left: `reasoner runs`, and the table at the end of a run."""

import json
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from reasoner.home import Home
from reasoner.records import ArtifactRef


def runs(as_json: bool) -> None:
    """List the run folders, newest first: when, what, how far, and where the model is."""
    rows = [
        _row(folder)
        for folder in Home.from_environment().runs.glob("*/")
        if (folder / "config.json").is_file()
    ]
    rows.sort(key=lambda row: row["started"], reverse=True)
    if as_json:
        json.dump(rows, sys.stdout, indent=1)
        print()
        return
    if not rows:
        print(f"no runs in {Home.from_environment().runs}")
    width = max((len(row["run"]) for row in rows), default=0)
    for row in rows:  # plain lines: names and paths are there to be copied, so they are never cut
        print(f"{row['run']:<{width}}  {row['started']}  {row['state']:<10}  {row['model'] or ''}".rstrip())


def show_result(report: ArtifactRef, run_folder: Path, seconds: float) -> None:
    """The headline tables, then where the model, the report and the run page are."""
    from rich.console import Console

    from reasoner.report.terminal import print_headline
    from reasoner.stages.report import read
    from reasoner.store import open_ref

    console = Console()
    for table in read(open_ref(report)).tables:
        print_headline(table, console)
    show_places(run_folder, seconds)


def show_places(run_folder: Path, seconds: float) -> None:
    """Where the model, the report and the run page are."""
    facts = json.loads((run_folder / "result.json").read_text())
    print(f"model     {facts['model_path']}")
    page = run_folder / "report.html"
    print(f"report    {page if page.is_file() else run_folder / 'report.md'}")
    print(f"run page  {_page(run_folder)}")
    print(f"done in {seconds:.0f} s")


def _page(run_folder: Path) -> str:
    """Address of the run's page, and the command that serves it where the server ended with this process."""
    run_id = run_folder.name[-36:]
    url = os.environ.get("PREFECT_API_URL")
    if url and os.environ.get("PREFECT_HOME") != str(Home.from_environment().prefect):
        return f"{url.removesuffix('/api')}/runs/flow-run/{run_id}"
    command = (
        f"PREFECT_HOME={os.environ['PREFECT_HOME']} {Path(sys.executable).with_name('prefect')} server start"
    )
    return f"http://127.0.0.1:4200/runs/flow-run/{run_id}  (open it while this runs: {command})"


def _row(folder: Path) -> dict[str, Any]:
    result = folder / "result.json"
    facts = json.loads(result.read_text()) if result.is_file() else {}
    started = datetime.fromtimestamp((folder / "config.json").stat().st_mtime).isoformat(
        sep=" ", timespec="seconds"
    )
    return {
        "run": folder.name,
        "started": started,
        "state": "done" if facts else "unfinished",
        "model": facts.get("model_path"),
        "folder": str(folder),
    }
