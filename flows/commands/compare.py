"""`reasoner compare`: is B better than A, by how much, and on which problems?"""

import json as json_format
import sys
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("compare")(compare)


def compare(
    a: Annotated[
        str,
        typer.Argument(
            help="A run, RUN@LABEL, an evaluation's digest, or a file of judged rows; runs of several seeds with "
            "commas between them"
        ),
    ],
    b: Annotated[str, typer.Argument(help="The same kind of thing; is it better than A?")],
    json: Annotated[
        bool, typer.Option("--json", help="Machine-readable output, every flipped problem")
    ] = False,
    shared: Annotated[
        bool, typer.Option("--shared", help="Compare the problems that both have where they differ")
    ] = False,
    flips: Annotated[int, typer.Option(min=0, help="Flipped problems shown each way")] = 5,
    confidence: Annotated[
        float, typer.Option(help="Of the intervals; 1 − it is the level of the power")
    ] = 0.95,
    seed: Annotated[int, typer.Option(help="Of the bootstrap")] = 0,
) -> None:
    """Compare two models on the same problems: paired tests, Holm over data sets, the problems that flipped."""
    from reasoner.errors import UsageError
    from reasoner.evaluation import comparison, seeds, words
    from reasoner.home import Home

    if not 0 < confidence < 1:
        raise UsageError(f"--confidence {confidence} must be between 0 and 1, for example 0.95")
    home = Home.from_environment()
    arms = seeds.find_arm(a, home, shared), seeds.find_arm(b, home, shared)
    first, second = (arm.answered for arm in arms)
    if both := [name for name in arms[0].names if "@" in name and name in arms[1].names]:
        raise UsageError(
            f"A and B are both {both[0]}; name another model of the run, RUN@LABEL (a wrong LABEL lists them)"
        )
    found = comparison.compare(first, second, shared=shared, confidence=confidence, seed=seed)
    if json:
        row = found.to_row()
        row["seeds"] = [{name: s.to_row() for name, s in arm.spreads.items()} for arm in arms]
        for one, plain in zip(found.sets, row["sets"], strict=True):
            plain["sentence"] = words.sentence(one, len(found.sets))
        json_format.dump(row, sys.stdout, indent=1, ensure_ascii=False)
        print()
        return
    for line in words.lines(found, flips, arms[0].spreads, arms[1].spreads):
        print(line)
