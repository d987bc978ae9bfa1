"""`reasoner report RUN`: one HTML file with a run's figures and every trajectory."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("report")(report)


def report(
    run: Annotated[str, typer.Argument(help="A run's id or name, a beginning of either, or its folder")],
    output: Annotated[
        Path | None, typer.Option("--output", help="Where to write it; by default report.html in the run's folder")
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser")] = False,
) -> None:  # fmt: skip
    """Write one HTML file with a run's figures and every trajectory; needs no network and no server to read."""
    from reasoner.audit.runs import find_run
    from reasoner.errors import UsageError
    from reasoner.home import Home
    from reasoner.report.html.build import size_words, write_html

    home = Home.from_environment()
    folder = find_run(run, home)
    if output is not None and output.is_dir():
        raise UsageError(f"--output {output} is a folder; name a file, such as {output / 'report.html'}")
    try:
        path, count = write_html(folder, home, output)
    except OSError as error:
        raise UsageError(
            f"cannot write the report: {error.strerror} ({error.filename}); give another --output"
        ) from None
    print(f"{path}  ({count} trajectories, {size_words(path.stat().st_size)})")
    if show and not webbrowser.open(path.resolve().as_uri()):
        print("no browser to open it with; open the file yourself")
