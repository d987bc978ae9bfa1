"""`reasoner evaluate`: any model on any data set."""

import json as json_format
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from reasoner.config.evaluate import EvaluateConfig


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("evaluate")(evaluate)


def evaluate(
    model: Annotated[
        str, typer.Argument(help="Folder, Hub id, package:…, adapter's folder, or http(s)://…/v1")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Further keys, such as data.columns.question=[Body,Question]")
    ] = None,
    data: Annotated[
        str, typer.Option("--data", help="A source of configs/data/source, a file or a Hub id")
    ] = "",
    strategy: Annotated[str, typer.Option(help="cot, sub, pot, or policy (the model chooses)")] = "cot",
    samples: Annotated[int, typer.Option(min=1, help="Responses a problem")] = 1,
    temperature: Annotated[
        float | None, typer.Option(help="0 is greedy; 0.7 where there are several samples")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="The most tokens of a response")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many problems, by hash")] = None,
    base_model: Annotated[
        str | None, typer.Option(help="An adapter's base, if it is not the one it names")
    ] = None,
    served_model: Annotated[str | None, typer.Option(help="The model's name on a server")] = None,
    engine: Annotated[str, typer.Option(help="auto, or one of configs/engine")] = "auto",
    json: Annotated[bool, typer.Option("--json", help="Machine-readable output")] = False,
) -> None:
    """Evaluate a model: pass@k, majority@k, intervals. The same command again makes only what is owed."""
    from reasoner.evaluation.request import read_request

    given = {
        "strategy": strategy, "samples": samples, "base_model": base_model, "served_model": served_model,
        "decoding.temperature": temperature if temperature is not None else (0.7 if samples > 1 else None),
        "decoding.max_tokens": max_tokens, "data.limit": limit,
    }  # fmt: skip
    config = read_request(
        model, data, engine, {k: v for k, v in given.items() if v is not None}, overrides or []
    )
    facts = _run(config)
    if json:
        json_format.dump(facts, sys.stdout, indent=1, ensure_ascii=False)
        print()
        return
    for line in lines(facts):
        print(line)


def lines(facts: dict[str, Any]) -> list[str]:
    """The evaluation for a terminal."""
    said = [f"{facts['model']} on {facts['dataset']}: {facts['n']} problems, {facts['samples']} samples each"]
    for k, found in facts["pass_at"].items():
        if found["value"] is not None:
            name = "accuracy" if facts["samples"] == 1 else f"pass@{k}"
            said.append(f"  {name:12} {found['value']:.1%}  ({found['low']:.1%} to {found['high']:.1%})")
    if facts["majority"] is not None:
        found = facts["majority"]
        name = f"majority@{facts['samples']}"
        said.append(
            f"  {name:12} {found['k'] / max(1, found['n']):.1%}  ({found['low']:.1%} to {found['high']:.1%})"
        )
    said.append(
        f"  without an answer {facts['no_answer']}, cut at the token limit {facts['truncated']}, problems unscored "
        f"{facts['unscored']}"
    )
    said.append(f"  completions: {facts['owed']} made now, {facts['found']} from the ledger")
    return [*said, f"evaluation  {facts['evaluation']}", f"rows        {facts['rows']}"]


def _run(config: "EvaluateConfig") -> dict[str, Any]:
    from reasoner.config.training import ComputeConfig
    from reasoner.engines.pool import EnginePool
    from reasoner.evaluation.evaluate import FACTS, ROWS
    from reasoner.evaluation.evaluate import evaluate as work
    from reasoner.home import Home
    from reasoner.ids import content_hash
    from reasoner.store import Store
    from reasoner.workbench import Workbench
    from tasks.progress import Progress

    home = Home.from_environment()
    place = home.runs / f"evaluate-{content_hash(config, 12)}"
    logs = place / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    progress, store = Progress(), Store(home.artifacts)

    def show(done: int, total: int, facts: dict[str, Any]) -> None:
        progress.update("evaluate", done, total, **facts)

    try:
        with (
            EnginePool(logs) as engines,
            store.writer(
                "evaluation", {"config": config.model_dump(mode="json", exclude={"engines"})}
            ) as out,
        ):
            bench = Workbench(home, engines, place, logs, show, compute=ComputeConfig(engines=config.engines))
            made = work(out.path, bench, config)
            out.metadata |= made
    finally:
        progress.close()
    folder: Path = store.open(out.ref)
    facts: dict[str, Any] = json_format.loads((folder / FACTS).read_text(encoding="utf-8"))
    counts = {name: made[name] for name in ("owed", "found", "tokens")}
    return {**facts, **counts, "evaluation": f"evaluation/{out.ref.digest}", "rows": str(folder / ROWS)}
