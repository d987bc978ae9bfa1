"""Builds the page of a run and writes it: one HTML file with its style, its script and all trajectories inside.

Model output is hostile here. Text in the templates is escaped by Jinja; text that the script shows is set as text,
never as markup; trajectories lie in base64; and a content security policy lets nothing run but this page's own script,
by its hash, and nothing be fetched.
"""

import base64
import hashlib
import json
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from reasoner.errors import DataError
from reasoner.home import Home
from reasoner.planning import plan as plans
from reasoner.records import Strategy
from reasoner.report import words
from reasoner.report.html import charts, multiturn, planner, smart
from reasoner.report.html.pack import Packed, pack
from reasoner.report.html.sections import Facts, Page, Step
from reasoner.report.html.sources import Artifact, Method, RunSource, open_source
from reasoner.report.html.trajectories import Collection
from reasoner.report.planner import arm_cells, notes, pair_sentence, seconds_sentence

TEMPLATES = Path(__file__).parent / "templates"
SCRIPTS = ("data.js", "search.js", "filters.js", "list.js", "diff.js", "trace.js", "flips.js", "main.js")
"""In this order; each is a part of one script."""
FILE = "report.html"
CHEAP = 12_000_000
"""A run writes its page itself up to so many bytes of rows, which takes less than 2 s; beyond, the command does."""

Gather = Callable[[RunSource, Page, Collection, bool], None]
GATHER: dict[Method, Gather] = {
    "smart": smart.gather,
    "planner": planner.gather,
    "multiturn": multiturn.gather,
}
FACETS: dict[Method, str] = {"smart": "Strategy", "planner": "Plan", "multiturn": "Turns"}


def build(folder: Path, home: Home, chat: bool = True) -> tuple[Page, Collection]:
    """The page of the run in `folder` and its trajectories. Without `chat` no tokenizer is loaded, and prompts of
    policies are shown without the chat template. Raises UsageError and DataError as `open_source`."""
    return gathered(open_source(folder, home), chat)


def gathered(source: RunSource, chat: bool) -> tuple[Page, Collection]:
    """As `build`, of an opened run."""
    collection = Collection()
    page = Page(_title(source), source.name, source.method, source.finished)
    GATHER[source.method](source, page, collection, chat)
    page.facts = _facts(source)
    page.steps = _steps(source)
    page.config = json.dumps(source.config, indent=2, ensure_ascii=False)
    page.notes = [f"Not shown: {sentence}" for sentence in source.missing]
    return page, collection


def render(page: Page, collection: Collection) -> str:
    """The page as HTML."""
    style, script = (TEMPLATES / "page.css").read_text("utf-8"), _script()
    given: Packed = pack(collection)
    return _environment().get_template("page.html.jinja").render(
        page=page, collection=collection, packed=given, style=Markup(style), script=Markup(script),
        policy=_policy(style, script), facet=FACETS[page.method],  # type: ignore[index]
    )  # fmt: skip


def write_html(folder: Path, home: Home, output: Path | None = None, chat: bool = True) -> tuple[Path, int]:
    """Write the page, by default `report.html` in the run's folder; returns its path and its number of trajectories."""
    return _write(output or folder / FILE, *build(folder, home, chat))


def write_if_cheap(folder: Path, home: Home, say: Callable[[str], None]) -> None:
    """What a run does at its end. A page that cannot be made costs no run: `say` is told why, and how to try again."""
    again = f"`reasoner report {folder.name}`"
    try:
        source = open_source(folder, home)
        if sum(artifact.rows_size for artifact in source.artifacts) > CHEAP:
            say(f"many trajectories: {again} writes the HTML report")
            return
        # A tokenizer takes seconds to load, unless the run has loaded its library anyway.
        _write(folder / FILE, *gathered(source, chat="transformers" in sys.modules))
    except Exception as error:
        say(f"no HTML report ({type(error).__name__}: {error}); {again} tries again")


def _write(output: Path, page: Page, collection: Collection) -> tuple[Path, int]:
    output.parent.mkdir(parents=True, exist_ok=True)
    temporary = output.with_name(f".{output.name}.{os.getpid()}")
    temporary.write_text(render(page, collection), encoding="utf-8", errors="replace")
    temporary.replace(output)
    return output, len(collection.rows)


def _title(source: RunSource) -> str:
    """The pipeline's name: the run's without its id."""
    name = source.name
    return name[:-37] if len(name) > 37 and name[-37] == "-" else name


def _facts(source: RunSource) -> list[Facts]:
    config = source.config
    model = config.get("model") or {}
    name = model.get("path") if isinstance(model, dict) else model
    run = [
        ("run", source.name),
        ("method", str(config.get("method", source.method))),
        ("state", "finished" if source.finished else "unfinished: this page shows what is there"),
        ("base model", str(name or config.get("policy_lm") or "")),
        ("revision", str(model.get("revision") or "") if isinstance(model, dict) else ""),
        ("engine", str((config.get("engine") or {}).get("kind", ""))),
        ("seed", str(config.get("seed", ""))),
    ]
    if source.artifacts:
        first, last = (a.created[:16].replace("T", " ") for a in (source.artifacts[0], source.artifacts[-1]))
        run.append(("made (UTC)", f"{first} to {last[11:] if last[:10] == first[:10] else last}"))
    run.append(("took", _took(source.folder)))
    found = [Facts("Run", tuple((k, v) for k, v in run if v))]
    environment: dict[str, Any] = next(
        (a.facts["environment"] for a in reversed(source.artifacts) if "environment" in a.facts), {}
    )
    if environment:
        packages = environment.get("packages", {})
        rest = [(k, str(v)) for k, v in environment.items() if k != "packages"]
        found.append(Facts("Environment", (*rest, *((k, str(v)) for k, v in packages.items()))))
    return found


def _took(folder: Path) -> str:
    """The run's last part in words, beside its plan; empty where no plan was kept or it has not ended."""
    try:
        plan = plans.read(folder)
    except DataError:
        return ""
    if plan.actual_seconds is None:
        return ""
    return f"{_minutes(plan.actual_seconds)}, planned {_minutes(plan.seconds)}"


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def _steps(source: RunSource) -> list[Step]:
    numbers = {a.ref.digest: i for i, a in enumerate(source.artifacts, 1)}

    def step(artifact: Artifact) -> Step:
        facts = artifact.facts
        return Step(
            numbers[artifact.ref.digest], artifact.label, artifact.ref.kind, artifact.ref.digest, artifact.created,
            facts.get("seconds"), facts.get("tokens"), artifact.size,
            tuple(sorted(numbers[r.digest] for r in artifact.made_from if r.digest in numbers)),
        )  # fmt: skip

    return [step(artifact) for artifact in source.artifacts]


@cache
def _script() -> str:
    """The page's script: its parts in one function, so that it leaves no name behind."""
    parts = [(TEMPLATES / name).read_text("utf-8") for name in SCRIPTS]
    return '(() => {\n"use strict";\n' + "\n".join(parts) + "\n})();"


def _policy(style: str, script: str) -> str:
    """The content security policy. Hashes are of exactly what stands between the tags."""

    def hashed(text: str) -> str:
        return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"

    return (
        f"default-src 'none'; script-src {hashed(script)}; style-src {hashed(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters |= {
        "share": words.share,
        "interval": words.interval,
        "p": words.p_value,
        "title": strategy_title,
        "thousands": lambda n: f"{n:,}".replace(",", "\u202f"),
        "size": size_words,
        "number": charts.number,
    }
    environment.globals |= {
        "percent": words.percent,
        "axis_of": charts.axis,
        "p_cell": words.p_cell,
        "sentences": words.sentences,
        "collapses": words.collapses,
        "turn2_cells": words.turn2_cells,
        "forced_cells": words.forced_cells,
        "arm_cells": arm_cells,
        "pair_sentence": pair_sentence,
        "arm_notes": notes,
        "seconds_sentence": seconds_sentence,
        "strategies": [s.value for s in Strategy],
        "models": words.MODELS,
        "chart_size": (charts.WIDTH, charts.HEIGHT, charts.LEFT, charts.RIGHT, charts.TOP, charts.BOTTOM),
    }
    return environment


def strategy_title(name: str) -> str:
    """A strategy's name in words; any other word as it is."""
    return Strategy(name).title if name in list(Strategy) else name


def size_words(size: int) -> str:
    """Bytes in words."""
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size = size / 1000  # type: ignore[assignment]
    return f"{size:.1f} GB"
