"""`reasoner gc`: removes what nothing reaches."""

import json
import sys
import time
from typing import Annotated, Any

import typer

from reasoner.home import Home

DAYS = 7.0


def add_to(app: typer.Typer) -> None:
    @app.command("gc")
    def command(
        dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go")] = False,
        keep_days: Annotated[
            float,
            typer.Option(min=0, help="What was used in so many days stays, whether it is reached or not"),
        ] = DAYS,
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
    ) -> None:
        """Remove artifacts, ledgers, work and cut-off runs that no finished or living run and no release reaches."""
        collect(dry_run, keep_days, json)


def collect(dry_run: bool, keep_days: float, as_json: bool) -> None:
    """Take stock and remove. Raises BusyError where another sweep is at work."""
    from reasoner.housekeeping import sweep
    from reasoner.housekeeping.reach import look
    from reasoner.lineage.calls import ident
    from reasoner.lineage.known import Known
    from reasoner.store import Store

    home = Home.from_environment()
    with sweep.sweeping(home):
        reach = look(home, Known(Store(home.artifacts)), time.time(), keep_days)
        items = sweep.find(reach)
        done = [(item, "") for item in items] if dry_run else list(sweep.sweep(items, reach))
    gone = [item for item, why in done if not why]
    facts: dict[str, Any] = {
        "dry_run": dry_run,
        "bytes": sum(item.bytes for item in gone),
        "removed": [{"kind": i.kind, "name": i.name, "about": i.about, "bytes": i.bytes} for i in gone],
        "stays": [{"kind": item.kind, "name": item.name, "why": why} for item, why in done if why],
        "kept": {
            "artifacts": len(reach.kept & set(map(ident, reach.artifacts))),
            "runs": len(reach.kept_runs),
            "releases": sorted(reach.releases),
            "live": sorted({one.run for one in reach.live}),
        },
        "remote": reach.known.store.uri if reach.known.store.remote is not None else None,
    }
    if as_json:
        json.dump(facts, sys.stdout, indent=1, ensure_ascii=False)
        print()
        return
    _print(facts)


def _print(facts: dict[str, Any]) -> None:
    from reasoner.housekeeping.sizes import shown

    width = max((len(row["kind"]) for row in facts["removed"]), default=0)
    for row in facts["removed"]:
        print(f"{row['kind']:<{width}}  {shown(row['bytes']):>8}  {row['name']}  {row['about']}".rstrip())
    for row in facts["stays"]:
        print(f"stays: {row['kind']} {row['name']}: {row['why']}")
    kept = facts["kept"]
    told = [f"{kept['artifacts']} artifacts", f"{kept['runs']} runs"]
    told += [f"{len(kept['releases'])} releases"] if kept["releases"] else []
    told += [f"{len(kept['live'])} of the runs are going on"] if kept["live"] else []
    if facts["remote"]:
        print(f"artifacts at {facts['remote']} are not looked at: other machines may use them")
    verb = "would free" if facts["dry_run"] else "freed"
    print(f"{verb} {shown(facts['bytes'])} in {len(facts['removed'])} pieces; kept: {', '.join(told)}")
