"""SMART's original scripts, one step a command, in a plain folder (originals: infer.py, analysis.ipynb, …)."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from reasoner.stages.smart_folder import SmartFolder

Folder = Annotated[Path, typer.Option("--dir", help="The folder that smart-infer filled")]
Epoch = Annotated[int, typer.Option("--epoch", help="Which epoch, from 1")]
Model = Annotated[
    str | None, typer.Option("--model", help="A merged model to use instead of the folder's own")
]
RESULTS = Path("results")


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("smart-infer")(infer)
    app.command("smart-analyse")(analyse)
    app.command("smart-records")(records)
    app.command("smart-train")(train)
    app.command("smart-merge")(merge)
    app.command("smart-sample")(sample)
    app.command("smart-evaluate")(evaluate)


def infer(
    model: Annotated[str, typer.Argument(help="Folder, Hub id or package:NAME/FILE.gguf")],
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where results go")],
    strategy: Annotated[str, typer.Argument(help="cot, sub or pot")],
    part: Annotated[int, typer.Argument(help="1 to 5: which fifth of the pool")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Dotted overrides, such as data=gsm8k")
    ] = None,
    config: Annotated[
        str, typer.Option("--config-name", help="The configuration to start from")
    ] = "smart-epoch2",
    evaluation_set: Annotated[
        str, typer.Option("--set", help="An evaluation set instead of the pool, whole: a baseline")
    ] = "",
) -> None:
    """Few-shot inference with one strategy on one part of the pool (data=metamath unless you choose)."""
    from reasoner.config.compose import load
    from reasoner.config.smart import SmartConfig
    from reasoner.errors import UsageError
    from reasoner.records import Strategy
    from reasoner.stages.smart_asked import require_part
    from reasoner.stages.smart_folder import SmartFolder

    require_part(part)
    if strategy not in list(Strategy):
        raise UsageError(f"STRATEGY is one of {', '.join(Strategy)}, not {strategy!r}")
    given = list(overrides or [])
    if config == "smart-epoch2" and not any(word.startswith("data=") for word in given):
        given.insert(0, "data=metamath")
    loaded = load(config, [*given, f"model.path={model}"], SmartConfig)
    if strategy not in loaded.few_shot.strategies:
        names = ",".join(loaded.few_shot.strategies)
        raise UsageError(f"STRATEGY {strategy} is not among few_shot.strategies=[{names}]")
    _print(
        _shown(
            lambda show: SmartFolder.create(folder, loaded, show).infer(
                Strategy(strategy), part, evaluation_set
            )
        )
    )


def analyse(folder: Annotated[Path, typer.Argument(metavar="DIR")]) -> None:
    """How the strategies did and overlap (analysis.ipynb)."""
    _print(_step(folder, lambda run: run.analyse()))


def records(
    epoch: Annotated[int, typer.Argument(help="Which epoch, from 1")], folder: Folder = RESULTS
) -> None:
    """Training records of an epoch (preprocess.ipynb)."""
    _print(_step(folder, lambda run: run.records(epoch)))


def train(
    folder: Folder = RESULTS,
    epoch: Epoch = 1,
    batch_size: Annotated[
        int | None, typer.Option("--per_device_train_batch_size", help="Records a device and micro-step")
    ] = None,
    grad_accum: Annotated[
        int | None, typer.Option("--gradient_accumulation_steps", help="Micro-steps an optimiser step")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option("--record", help="Also leave RECORD/DATE-TIME/MODEL/checkpoint-N with code and config"),
    ] = None,
) -> None:
    """Fine-tune on an epoch's records and merge (run.sh, train.py)."""
    _print(_step(folder, lambda run: run.train(epoch, batch_size, grad_accum, record)))


def merge(
    adapter: Annotated[Path, typer.Option("--adapter_model_name", help="Adapter or checkpoint folder")],
    base: Annotated[str, typer.Option("--base_model_name", help="The model that it was trained on")],
    output: Annotated[Path, typer.Option("--output_name", help="A new folder for the merged model")],
) -> None:
    """Merge an adapter into its base (merge_peft_adapter.py)."""
    from reasoner.home import Home
    from reasoner.stages.smart_merge import merge as merge_adapter

    log = Home.from_environment().work / "smart-merge" / f"{output.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    _print(merge_adapter(adapter, base, output, log))


def sample(folder: Folder = RESULTS, epoch: Epoch = 2, model: Model = None) -> None:
    """Let the model make its own training data, two turns (sample.py)."""
    _print(_step(folder, lambda run: run.sample(epoch, model)))


def evaluate(
    dataset: Annotated[str, typer.Argument(help="An evaluation set of the configuration")],
    folder: Folder = RESULTS,
    epoch: Annotated[int, typer.Option("--epoch", help="Which epoch's model; 0 is the base")] = 1,
    model: Model = None,
) -> None:
    """First and second attempts and each strategy on one set (evaluate.py)."""
    _print(_step(folder, lambda run: run.evaluate(dataset, epoch, model)))


def _step(folder: Path, work: "Callable[[SmartFolder], dict[str, Any]]") -> dict[str, Any]:
    from reasoner.stages.smart_folder import SmartFolder

    return _shown(lambda show: work(SmartFolder.open(folder, show)))


def _shown(work: Callable[[Callable[..., None]], dict[str, Any]]) -> dict[str, Any]:
    """Run a step with a progress display."""
    from tasks.progress import Progress

    progress = Progress()
    try:
        return work(lambda label, done, total, facts: progress.update(label, done, total, **facts))
    finally:
        progress.close()


def _print(facts: dict[str, Any]) -> None:
    json.dump(facts, sys.stdout, indent=1, ensure_ascii=False)
    print()
