"""`reasoner lineage`: where a model came from."""

import json
import sys
from typing import Annotated

import typer

from reasoner.home import Home


def add_to(app: typer.Typer) -> None:
    @app.command("lineage")
    def command(
        model: Annotated[
            str, typer.Argument(help="A run, a digest or its beginning, a stage's key, or a model's folder")
        ],
        json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
        full: Annotated[
            bool, typer.Option("--full", help="Every setting, uncut, and what stages found")
        ] = False,
    ) -> None:
        """Print what a model was made from, down to problems, seeds, settings and the base model."""
        tell(model, json, full)


def tell(name: str, as_json: bool, full: bool) -> None:
    """Print the lineage of the artifact called `name`. Raises UsageError where nothing is called so."""
    from reasoner.lineage.find import find_model
    from reasoner.lineage.known import Known
    from reasoner.lineage.lines import lines
    from reasoner.lineage.tree import tree
    from reasoner.store import Store

    home = Home.from_environment()
    store = Store(home.artifacts)
    ref, calls = find_model(name, home, Known(store))
    root = tree(ref, Known(store, calls))
    if as_json:
        json.dump(root.to_row(), sys.stdout, indent=1, ensure_ascii=False)
        print()
        return
    for line in lines(root, full):
        print(line)
