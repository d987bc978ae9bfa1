"""A run's report as Markdown, through the Jinja templates beside this file.

The templates hold the words and the order of the page; this module offers them the filters. Text from outside
(names, facts, notes) is escaped so that it can break neither a table nor the page.
"""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from reasoner.records import Strategy
from reasoner.report import words
from reasoner.report.data import RunReport

TEMPLATES = Path(__file__).parent / "templates"


def render_markdown(report: RunReport, template: str = "smart.md.jinja") -> str:
    """The report as one Markdown page. `template` is a file under reasoner/report/templates/."""
    return _environment().get_template(template).render(report=report)


def escaped(text: object) -> str:
    """Text for one line or cell of Markdown: no line break, column mark or tag."""
    line = " ".join(str(text).split())
    return line.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("`", "\\`")


def table_row(cells: list[object]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,  # the page is Markdown; see `escaped`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "md": escaped,
        "row": table_row,
        "share": words.share,
        "interval": words.interval,
        "p": words.p_value,
        "title": lambda name: Strategy(name).title,
        "cells": words.cells,
        "header": words.header,
        "sentences": words.sentences,
        "collapses": words.collapses,
        "turn2_cells": words.turn2_cells,
        "forced_cells": words.forced_cells,
    }
    environment.globals |= {
        "percent": words.percent,
        "strategies": [s.value for s in Strategy],
        "models": words.MODELS,
    }
    return environment
