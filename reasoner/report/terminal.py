"""The headline table for a terminal. Where the output is no terminal: plain lines, never cut to a width."""

from rich.console import Console
from rich.table import Table

from reasoner.report import words
from reasoner.report.data import HeadlineTable


def print_headline(table: HeadlineTable, console: Console) -> None:
    """Print the table and its sentences; alarms come right below the table."""
    if console.is_terminal:
        console.print(_rich(table))
    else:
        _line(console, table.name)
        for line in plain_lines(table):
            _line(console, line)
    for sentence in words.collapses(table.rows):
        console.print(
            sentence, style="bold red", markup=False, highlight=False, soft_wrap=not console.is_terminal
        )
    more = [sentence for row in table.rows for sentence in words.turns_in_words(row)]
    for sentence in [*words.sentences(table), *more]:
        console.print(sentence, markup=False, highlight=False, soft_wrap=not console.is_terminal)


def plain_lines(table: HeadlineTable) -> list[str]:
    """The table as lines with aligned columns, two spaces between them."""
    lines = [words.header(table), *(words.cells(row) for row in table.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    padded = [
        [line[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True))]
        for line in lines
    ]
    return ["  ".join(line).rstrip() for line in padded]


def _rich(table: HeadlineTable) -> Table:
    drawn = Table(title=table.name, title_justify="left")
    for i, name in enumerate(words.header(table)):
        drawn.add_column(name, justify="right" if i else "left", overflow="fold")
    for row in table.rows:
        collapsed = row.evaluation is not None and row.evaluation.collapse is not None
        drawn.add_row(*words.cells(row), style="red" if collapsed else None)
    return drawn


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
