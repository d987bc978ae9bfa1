"""`reasoner release`: give a run's model a name, and look at the names that there are."""

import json
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

Json = Annotated[bool, typer.Option("--json", help="Machine-readable output")]
Name = Annotated[str, typer.Argument(help="A release's name")]


class AddByDefault(TyperGroup):
    """`release RUN NAME` is `release add RUN NAME`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = next((word for word in args if not word.startswith("-")), None)
        if first is not None and first not in self.commands:
            args = ["add", *args]
        return super().parse_args(ctx, args)


def add_to(app: typer.Typer) -> None:
    """Register the group."""
    group = typer.Typer(
        cls=AddByDefault,
        no_args_is_help=True,
        help="Name a run's model, so that it is measured each night: release RUN NAME; list, show, remove.",
        rich_markup_mode=None,
    )
    group.command("add")(add)
    group.command("list")(list_)
    group.command("show")(show)
    group.command("remove")(remove)
    app.add_typer(group, name="release")


def add(
    run: Annotated[str, typer.Argument(help="A run's id or name, a beginning of either, or its folder")],
    name: Annotated[str, typer.Argument(help="What to call it: small letters, digits, dashes")],
    replace: Annotated[bool, typer.Option("--replace", help="Let a known name stand for this run")] = False,
) -> None:
    """Release the model of a finished run under a name."""
    from reasoner.audit.runs import find_run
    from reasoner.home import Home
    from reasoner.releases.book import Book
    from reasoner.releases.finding import release_of

    home = Home.from_environment()
    book = Book(home)
    release = release_of(find_run(run, home), name, home)
    book.add(release, replace=replace)
    print(f"{name}  model {release.model.digest[:16]} of run {release.run}, measured on"
          f" {', '.join(each.name for each in release.sets)}")  # fmt: skip


def list_(as_json: Json = False) -> None:
    """List the releases."""
    from reasoner.home import Home
    from reasoner.releases.book import Book

    book = Book(Home.from_environment())
    releases = book.list()
    if as_json:
        _print([_row(release) for release in releases])
        return
    if not releases:
        print(f"no releases in {book.path}")
    width = max((len(release.name) for release in releases), default=0)
    for release in releases:
        hub = f"  {release.hub_repo}@{(release.hub_revision or '')[:12]}" if release.hub_repo else ""
        print(f"{release.name:<{width}}  {release.date}  {release.model.digest[:16]}  {release.run}{hub}")


def show(name: Name, as_json: Json = False) -> None:
    """Show what a name stands for, and its nights."""
    from reasoner.home import Home
    from reasoner.releases.book import Book
    from reasoner.releases.history import History
    from reasoner.releases.trend import sentence

    home = Home.from_environment()
    release = Book(home).get(name)
    nights = History(home, name).read(release.model.digest)
    if as_json:
        _print(_row(release) | {"nights": [night.to_row() for night in nights]})
        return
    for key, value in _row(release).items():
        if key != "sets":
            print(f"{key:<13} {value if value is not None else 'none'}")
    for each in release.sets:
        print(
            f"{'evaluation':<13} {each.name}: {each.evaluation.digest} (verdicts {each.outcomes.digest[:16]})"
        )
    for night in nights[-10:]:
        for set_name, change in night.sets.items():
            print(f"{'night':<13} {night.night}  {sentence(set_name, change)}")


def remove(name: Name) -> None:
    """Forget a release; the artifacts stay."""
    from reasoner.home import Home
    from reasoner.releases.book import Book

    gone = Book(Home.from_environment()).remove(name)
    print(f"{name} is no release any more; its model {gone.model.digest[:16]} stays in the store")


def _row(release: Any) -> dict[str, Any]:
    """What people ask of a release."""
    base = f"{release.base} ({release.base_digest[:16]})"
    return {
        "name": release.name, "model": release.model.digest, "model_path": release.model.uri, "base": base,
        "base_revision": release.base_revision, "method": release.method, "run": release.run, "date": release.date,
        "hub_repo": release.hub_repo, "hub_revision": release.hub_revision,
        "sets": {each.name: each.evaluation.digest for each in release.sets},
    }  # fmt: skip


def _print(value: Any) -> None:
    json.dump(value, sys.stdout, indent=1, ensure_ascii=False)
    print()
