"""Our engine's settings against vLLM's defaults, at once and in small batches; the share of the card's ceiling.

    python benchmarks/engine_settings.py MODEL_FOLDER [--shapes few_shot,sampling,decode] [--prompts N] [--length 1.0]
        [--rounds 5] [--options JSON] [--variant NAME=JSON …] [--sides ours,default,small] [--small 16] [--share 0.85]
        [--profile] [--out F]

Every side is `vllm.LLM.generate` on the same prompts in the same order and makes the same number of tokens of each
(the end token is ignored), so that only settings differ:

* `ours`: the arguments of our engine with the options of configs/engine/vllm.yaml (vllm_cpu.yaml on a processor);
* `default`: `vllm.LLM(model)`, all prompts in one call;
* `small`: the same engine, `--small` prompts a call, one call after another, as the scripts that this replaces do
  (four calls a round: its rate does not depend on how many follow);
* `--variant NAME=JSON`: ours with further options, such as full CUDA graphs.

All stay loaded and take turns, A B B A; the first round is warm-up. On a card they share `--share` of the memory
equally, which is the one default that is changed; caches of that size are not what limits these loads.

`share_of_ceiling`, of `decode` alone, where all sequences go in step: the seconds that reasoner.planning.roofline gives
at full bandwidth and arithmetic, over those measured. `--profile` adds a round for each side with vLLM's
core in the same process: steps with and without prompts to read, their seconds, the longest kernels. Rates of that
round don't count.

Interrupted (Ctrl-C), it writes the rounds that it has. Does not cover adapters, many cards, or what our own process
costs (engine.py does). Exit status 1 when the upper end of ours over the defaults is below 2 in every shape.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from paced import median_interval, settings_of, software, write  # noqa: E402
from shapes import SHAPES, Load  # noqa: E402
from turns import Side, in_turns  # noqa: E402

from reasoner.engines.vllm_settings import is_cpu_build  # noqa: E402
from reasoner.hardware import compute_environment, served_dtype  # noqa: E402
from reasoner.planning import roofline  # noqa: E402
from reasoner.planning.architecture import Architecture  # noqa: E402
from reasoner.planning.benchmark import measure_cpu  # noqa: E402
from reasoner.planning.device import Device, card_named  # noqa: E402

BAR = 2.0
SMALL_CALLS = 4


def product_options(cpu: bool) -> dict[str, Any]:
    """What our configuration gives the engine. Its share of the memory is the benchmark's."""
    name = "vllm_cpu" if cpu else "vllm"
    found = yaml.safe_load((ROOT / "configs" / "engine" / f"{name}.yaml").read_text(encoding="utf-8"))
    return {key: value for key, value in found["options"].items() if key != "gpu_memory_utilization"}


def engines(given: argparse.Namespace, cpu: bool) -> dict[str, dict[str, Any]]:
    """The settings of every engine that is started, by its name."""
    variants = dict(text.split("=", 1) for text in given.variant)
    count = len(variants) + len({"ours", "default"} & set(given.sides.split(",")))
    share = {} if cpu else {"gpu_memory_utilization": round(given.share / count, 3)}
    own = product_options(cpu) | json.loads(given.options) | share
    common = {"model": str(given.model.resolve()), "dtype": given.dtype, "profile": False}
    found = {"ours": {**common, "ours": True, "options": own}}
    found["default"] = {**common, "ours": False, "options": {**share, **json.loads(given.default_options)}}
    for name, text in variants.items():
        found[name] = {**common, "ours": True, "options": own | json.loads(text)}
    return {name: told for name, told in found.items() if name in given.sides.split(",") or name in variants}


def start(name: str, told: dict[str, Any], room: Path) -> Side:
    """The process of an engine."""
    argv = [str(ROOT / "benchmarks" / "vllm_side.py"), json.dumps(told)]
    return Side(name, argv, room / f"{name}.log", compute_environment() if told["ours"] else None)


def ask(side: Side, load: Load, batch: int | None) -> dict[str, Any]:
    """One round of a side; with `batch`, a few small calls of it."""
    count = len(load.prompts) if batch is None else min(len(load.prompts), SMALL_CALLS * batch)
    side.order(do="generate", prompts=load.prompts[:count], lengths=load.lengths[:count],
               temperature=load.temperature, exact=True, batch=batch)  # fmt: skip
    row = side.expect("tokens")
    return {**row, "requests": count, "rate": row["tokens"] / row["seconds"]}


def ideal_seconds(row: dict[str, Any], arch: Architecture, device: Device, dtype: str) -> float:
    """What a round would take at the card's full bandwidth and arithmetic, all its sequences in step."""
    requests = row["requests"]
    tokens, context = row["tokens"] / requests, row["prompt_tokens"] / requests
    read = roofline.prefill(arch, device, row["prompt_tokens"], 1.0)
    return read + roofline.decode(
        arch,
        device,
        sequences=requests,
        tokens=tokens,
        context=context,
        batch=requests,
        dtype=dtype,
        share=1.0,
    )


def measure(given: argparse.Namespace, room: Path) -> dict[str, Any]:
    """All shapes with all sides. An engine that does not start or fails is left out, with its error."""
    told, errors = engines(given, is_cpu_build()), dict[str, str]()
    running: dict[str, Side] = {}
    started: dict[str, float] = {}
    rows: dict[str, dict[str, list[dict[str, Any]]]] = {}
    try:
        for name, settings in told.items():  # one after another: each looks at the memory that is free
            try:
                running[name] = start(name, settings, room)
                started[name] = running[name].expect("ready")["seconds_to_start"]
            except RuntimeError as error:
                errors[name] = str(error)
                running.pop(name).end()
        for word in given.shapes.split(","):
            rounds(given, word, running, rows.setdefault(word, {}))
    except KeyboardInterrupt:
        errors["interrupted"] = "the rounds so far are kept"
    finally:
        for side in running.values():
            side.end()
    profile = given.profile and "interrupted" not in errors
    profiles = profiled(given, told, room, errors) if profile else {}
    return {"seconds_to_start": started, "errors": errors, "profiles": profiles, "rows": rows}


def rounds(
    given: argparse.Namespace, word: str, running: dict[str, Side], found: dict[str, list[dict[str, Any]]]
) -> None:
    """Add the rounds of a shape, by side, to `found`."""
    shape = SHAPES[word].scaled(given.prompts, given.length)
    names = [*running, *(["small"] if "default" in running and "small" in given.sides.split(",") else [])]
    for number, name in in_turns(names, given.rounds):
        side = running["default" if name == "small" else name]
        row = ask(side, shape.load(number), given.small if name == "small" else None)
        print(f"{word} round {number} {name}: {row['rate']:.1f} tokens/s", file=sys.stderr, flush=True)
        if number:
            found.setdefault(name, []).append(row)


def profiled(
    given: argparse.Namespace, told: dict[str, Any], room: Path, errors: dict[str, str]
) -> dict[str, Any]:
    """A round of every engine and shape with its steps and kernels, an engine at a time."""
    found: dict[str, Any] = {}
    for name, settings in told.items():
        if name in errors:
            continue
        side = start(f"{name}-profile", {**settings, "profile": True}, room)
        try:
            side.expect("ready")
            for word in given.shapes.split(","):
                shape = SHAPES[word].scaled(given.prompts, given.length)
                ask(side, shape.load(0), None)  # warm-up
                found.setdefault(word, {})[name] = ask(side, shape.load(1), None)["profile"]
        except RuntimeError as error:
            errors[f"{name} profile"] = str(error)
        side.end()
    return found


def summary(
    sides: dict[str, list[dict[str, Any]]], ceiling: tuple[Architecture, Device, str] | None
) -> dict[str, Any]:
    """Rates, ratios and shares of the ceiling of one shape."""
    rates = {name: [row["rate"] for row in rows] for name, rows in sides.items() if rows}
    told: dict[str, Any] = {"tokens_per_second": {name: median_interval(r) for name, r in rates.items()}}
    told["ours_over"] = {
        name: median_interval([a / b for a, b in zip(rates["ours"], other, strict=False)])
        for name, other in rates.items()
        if name != "ours" and "ours" in rates
    }
    if ceiling:
        told["share_of_ceiling"] = {
            name: median_interval([ideal_seconds(row, *ceiling) / row["seconds"] for row in rows])
            for name, rows in sides.items()
            if rows and name != "small"
        }
    return told


def ceiling_of(model: Path, dtype: str, card: str | None) -> tuple[Architecture, Device, str] | None:
    """Model, device and precision for the ceiling; None on a card that is not in the table."""
    device = card_named(card) if card else measure_cpu()
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    return (Architecture.from_config(config), device, served_dtype(dtype, card is None)) if device else None


def failed(shapes: Sequence[dict[str, Any]]) -> bool:
    """Whether no shape reaches the bar."""
    ratios = [shape["ours_over"].get("default") for shape in shapes]
    return not any(ratio and ratio["high"] >= BAR for ratio in ratios)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--prompts", type=int, help="of every shape; unset is each one's number")
    parser.add_argument("--length", type=float, default=1.0, help="times the shapes' answers")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--options", default="{}", help="further options of our engine as JSON")
    parser.add_argument(
        "--default-options", default="{}", help="what vLLM's defaults can't do without, as JSON"
    )
    parser.add_argument(
        "--variant", action="append", default=[], help="NAME=JSON: ours with these options, too"
    )
    parser.add_argument("--sides", default="ours,default,small", help="which, besides the variants")
    parser.add_argument("--small", type=int, default=16, help="prompts of a small batch")
    parser.add_argument(
        "--share", type=float, default=0.85, help="of the card's memory, all engines together"
    )
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--logs", type=Path, help="an empty folder that keeps what the engines said")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as room:
        logs = given.logs or Path(room)
        logs.mkdir(parents=True, exist_ok=True)
        found = measure(given, logs)
    rows, told = found.pop("rows"), software()
    ceiling = ceiling_of(given.model, given.dtype, told["card"])
    shapes = {word: summary(sides, ceiling if word == "decode" else None) for word, sides in rows.items()}
    result = {"benchmark": "engine_settings", **told, "settings": settings_of(given), "bar": BAR, **found}
    write({**result, "shapes": shapes, "rounds": rows}, given.out)
    return int(failed(list(shapes.values())))


if __name__ == "__main__":
    raise SystemExit(main())
