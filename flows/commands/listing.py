"""What runs have left: `reasoner runs`, and the table at the end of a run."""

import json
import os
import sys
import time
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reasoner.home import Home
from reasoner.records import ArtifactRef

if TYPE_CHECKING:
    from reasoner.housekeeping.reach import Reach, Run


def runs(as_json: bool) -> None:
    """List the run folders, newest first: when, what, how far, how large, and where the model is.

    The size is that of everything that a run has used and made; `own` is what no other run and no release reaches.
    """
    from reasoner.housekeeping.reach import look
    from reasoner.housekeeping.sizes import shown
    from reasoner.lineage.known import Known
    from reasoner.store import Store

    home = Home.from_environment()
    reach = look(home, Known(Store(home.artifacts)), time.time(), keep_days=0) if home.path.is_dir() else None
    found = [run for run in reach.runs if (run.folder / "config.json").is_file()] if reach else []
    rows = [_row(run) | size for run, size in zip(found, _sizes(reach, found), strict=True)] if reach else []
    rows.sort(key=lambda row: row["started"], reverse=True)
    if as_json:
        json.dump(rows, sys.stdout, indent=1)
        print()
        return
    if not rows:
        print(f"no runs in {home.runs}")
    width = max((len(row["run"]) for row in rows), default=0)
    for row in rows:  # plain lines: names and paths are there to be copied, so they are never cut
        sizes = f"{shown(row['bytes']):>8}  {shown(row['own_bytes']):>8} own"
        print(
            f"{row['run']:<{width}}  {row['started']}  {row['state']:<10}  {sizes}  {row['model'] or ''}".rstrip()
        )


def _sizes(reach: "Reach", found: "list[Run]") -> list[dict[str, int]]:
    """Bytes of each run's folder and of the artifacts that it reaches, and of those that only it reaches."""
    from reasoner.lineage.calls import ident

    bytes_of = {}
    for ref in reach.artifacts:
        manifest = reach.known.manifest(ref)
        bytes_of[ident(ref)] = manifest.size if manifest and not manifest.outside else 0
    reached = [reach.closure(run.refs()) for run in found]
    users = Counter(one for artifacts in reached for one in artifacts)
    users.update(reach.closure(reach.released()))
    return [
        {
            "bytes": run.bytes + sum(bytes_of.get(one, 0) for one in artifacts),
            "own_bytes": run.bytes + sum(bytes_of.get(one, 0) for one in artifacts if users[one] == 1),
        }
        for run, artifacts in zip(found, reached, strict=True)
    ]


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


def _row(run: "Run") -> dict[str, Any]:
    result = run.folder / "result.json"
    facts = json.loads(result.read_text()) if run.result else {}
    started = datetime.fromtimestamp((run.folder / "config.json").stat().st_mtime).isoformat(
        sep=" ", timespec="seconds"
    )
    return {
        "run": run.folder.name,
        "started": started,
        "state": run.state,
        "model": _model(facts, run.folder),
        "folder": str(run.folder),
    }


def _model(facts: dict[str, Any], folder: Path) -> str | None:
    """Where the run's model is: in this home folder, which may have come from another place, if it holds it."""
    from reasoner.store import Store

    path, row = facts.get("model_path"), facts.get("model")
    if isinstance(row, dict) and row.get("uri") == path:
        return Store(Home(folder.parent.parent).artifacts).here(ArtifactRef.from_row(row)).uri
    return path
