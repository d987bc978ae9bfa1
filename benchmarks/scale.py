"""What several cards give: tokens/s of fine-tuning, generation and GRPO on one and on more, on the same machine.

    python benchmarks/scale.py sft MODEL_FOLDER --processes 1 2 --out sft.json
    python benchmarks/scale.py generate MODEL_FOLDER --engines 1 2 --out generate.json [--kind vllm] [--option k=v]
    python benchmarks/scale.py grpo MODEL_FOLDER --cards 1 2 --out grpo.json [--data gsm8k.jsonl] [--option k=v]

Fine-tuning: the same records in the same optimiser steps for every number of processes; the rate is that of the steps
after the first `--warm`, without start and export. Generation: the same requests through the shared job of
`reasoner.shards`; the rate is from the moment when every engine is ready to the last completion that is recorded. GRPO:
as many training processes and engines as cards; the rate is completion tokens of the steps after `--warm` by their wall
time (of the planner without its worker's tokens), the parts of a step are those of the first process. Several engines
draw other samples than one.

`scaling` is the rate by that of the first number in the same round. One round has no interval; `--rounds R` runs the
numbers so often, in turns forwards and backwards. The result is written after every run.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from grpo_side import source  # noqa: E402

from reasoner.config.planner import PlannerGrpoConfig, RewardConfig, WorkerConfig  # noqa: E402
from reasoner.config.smart import EngineConfig, PromptConfig, SamplingConfig, SmartGrpoConfig  # noqa: E402
from reasoner.config.training import TrainConfig  # noqa: E402
from reasoner.engines.protocol import EngineSettings  # noqa: E402
from reasoner.ledger.keys import request_keys  # noqa: E402
from reasoner.problems.loading import load_problems  # noqa: E402
from reasoner.problems.word_problems import generate  # noqa: E402
from reasoner.prompts.chat import ChatRenderer  # noqa: E402
from reasoner.provenance import environment  # noqa: E402
from reasoner.records import GenerationRequest, Sampling, TrainingExample  # noqa: E402
from reasoner.shards.hosts import run_workers  # noqa: E402
from reasoner.shards.job import Job  # noqa: E402
from reasoner.shards.place import Place  # noqa: E402
from reasoner.store.rows import read_rows, write_rows  # noqa: E402
from reasoner.training.grpo.journal import METRICS  # noqa: E402
from reasoner.training.grpo.launch import run_grpo  # noqa: E402
from reasoner.training.launch import run_sft  # noqa: E402
from reasoner.training.planner.launch import PROGRAM as PLANNER  # noqa: E402
from reasoner.training.planner.spec import PlannerGrpoSpec  # noqa: E402
from reasoner.training.smart.spec import PROGRAM as SMART  # noqa: E402
from reasoner.training.smart.spec import SmartGrpoSpec  # noqa: E402
from reasoner.training.specs import SftSpec  # noqa: E402


def rendered(renderer: ChatRenderer, questions: list[str]) -> str:
    return str(renderer.render([{"role": "user", "content": "\n".join(questions)}]).text)


def records(model: Path, count: int, questions: int) -> list[TrainingExample]:
    """Records of like length: several questions each, answered in turn."""
    renderer, made = ChatRenderer(model), []
    problems = generate(400, seed=2)
    for i in range(count):
        chosen = [problems[(i * questions + j) % len(problems)] for j in range(questions)]
        text = " ".join(f"{p.question} The answer is {p.gold}." for p in chosen)
        prompt = rendered(renderer, [p.question for p in chosen])
        made.append(TrainingExample(f"p{i}", prompt, renderer.completion_text(text)))
    return made


def sft(arguments: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    """One training a number of processes."""
    model, batch, accum = arguments.model, arguments.batch, arguments.accum
    renderer = ChatRenderer(model)
    steps = arguments.steps
    rows = records(model, steps * batch * accum, arguments.questions)
    write_rows(scratch / "train.jsonl", [row.to_row() for row in rows])
    train = TrainConfig(
        batch_size=batch, grad_accum=accum, epochs=1.0, save_steps=10_000, min_records=1, max_length=4096
    )
    found: list[dict[str, Any]] = []
    for turn, processes in turns(arguments):
        work = scratch / f"sft-{turn}-{processes}"
        spec = SftSpec(
            base=model, base_name=model.name, train_rows=scratch / "train.jsonl", output=work / "adapter", work=work,
            end_token=renderer.end_token, train=train, add_special_tokens=not renderer.has_chat_template,
            processes=processes, device=arguments.device, sharding=arguments.sharding,
        )  # fmt: skip
        times: list[float] = []
        started = time.monotonic()
        write(arguments, found)
        try:
            done = run_sft(
                spec,
                scratch / f"sft-{turn}-{processes}.log",
                lambda facts, t=times: t.append(time.monotonic()),
            )
        except Exception as error:
            found.append(failed(turn, processes, error))
            continue
        counts = done.training["records"]
        tokens = (counts["prompt_tokens"] + counts["completion_tokens"]) / done.training["steps"]
        seconds = [after - before for before, after in pairwise(times[arguments.warm :])]
        found.append({
            "round": turn, "count": processes, "sharding": spec.sharding if processes > 1 else None,
            "tokens_per_s": tokens * len(seconds) / sum(seconds),
            "steps": len(seconds), "tokens_a_step": tokens, "batch": done.training["batch"], "step_seconds": seconds,
            "packing": done.training["packing"], "losses": [row["loss"] for row in done.training["losses"]],
            "whole_s": time.monotonic() - started, "memory": done.metrics,
        })  # fmt: skip
    return found


def generation(arguments: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    """One shared job a number of engines."""
    renderer = ChatRenderer(arguments.model)
    sampling = Sampling(temperature=0.8, max_tokens=arguments.tokens)
    prompts = [rendered(renderer, [p.question]) for p in generate(arguments.prompts, seed=1)]
    requests = [
        GenerationRequest(f"p{i}", prompt, sampling, 0, sample, "", not renderer.has_chat_template)
        for i, prompt in enumerate(prompts)
        for sample in range(arguments.samples)
    ]
    owed = dict(zip(request_keys(requests, "scale"), requests, strict=True))
    settings = EngineSettings(arguments.kind, arguments.model, options=options_of(arguments))
    found: list[dict[str, Any]] = []
    for turn, engines in turns(arguments):
        size = len(owed) if engines == 1 else -(-len(owed) // (engines * arguments.shards))
        job = Job.publish(Place(scratch / f"shards-{turn}-{engines}"), settings, owed, shard_size=size)
        times: list[float] = []
        started = time.monotonic()
        write(arguments, found)
        try:
            run_workers(
                job, engines, scratch / f"logs-{turn}-{engines}", scratch / f"work-{turn}-{engines}",
                lambda facts, t=times: t.append(time.time()), together=engines, batch=256, flush_seconds=2.0,
            )  # fmt: skip
        except Exception as error:
            found.append(failed(turn, engines, error))
            continue
        done = [completion for shard in job.shards() for completion in shard.read().done.values()]
        seconds = max(times) - json.loads(job.place.read("started") or b"0")
        made = sum(c.completion_tokens for c in done)
        found.append({
            "round": turn, "count": engines, "requests": len(done), "seconds": seconds, "completion_tokens": made,
            "prompt_tokens": sum(c.prompt_tokens for c in done), "tokens_per_s": made / seconds, "shard": size,
            "whole_s": time.monotonic() - started,
        })  # fmt: skip
    return found


def grpo(arguments: argparse.Namespace, scratch: Path) -> list[dict[str, Any]]:
    """One training a number of cards, on which it has as many processes and engines."""
    questions = load_problems(
        source(arguments.data and str(arguments.data), arguments.prompts * arguments.steps)
    ).problems
    write_rows(scratch / "questions.jsonl", [problem.to_row() for problem in questions])
    found: list[dict[str, Any]] = []
    for turn, cards in turns(arguments):
        room = scratch / f"grpo-{turn}-{cards}"
        module, spec = grpo_spec(arguments, scratch / "questions.jsonl", room, cards)
        started = time.monotonic()
        write(arguments, found)
        try:
            done = run_grpo(module, spec, room / "train.log")
        except Exception as error:
            found.append(failed(turn, cards, error))
            continue
        steps = read_rows(spec.work / METRICS)[arguments.warm :]
        found.append({
            "round": turn, "count": cards, **rate_of(steps, arguments.prompts * arguments.samples),
            "batch": done.training["batch"], "engine_restarts": done.metrics["engine_restarts"],
            "whole_s": time.monotonic() - started, "memory": done.metrics, "metrics": steps,
        })  # fmt: skip
    return found


def grpo_spec(
    arguments: argparse.Namespace, rows: Path, room: Path, cards: int
) -> tuple[str, SmartGrpoSpec | PlannerGrpoSpec]:
    """The program and its spec: the same effective batch for every number of cards, nothing saved before the end."""
    whole = arguments.prompts * arguments.samples
    settings: dict[str, Any] = {
        "batch_size": arguments.batch, "grad_accum": whole // arguments.batch, "num_generations": arguments.samples,
        "max_steps": arguments.steps, "save_steps": 10_000, "max_prompt_length": arguments.prompt_tokens,
        "max_completion_length": arguments.tokens, "max_samples": None, "share_card": arguments.share_card,
        "gradient_checkpointing": arguments.gradient_checkpointing,
    }  # fmt: skip
    common: dict[str, Any] = {
        "base": arguments.model.resolve(), "base_name": arguments.model.name, "rows": rows, "output": room / "adapter",
        "work": room / "work", "device": arguments.device, "processes": cards, "engines": cards,
        "engine": EngineConfig(kind=arguments.kind, options=options_of(arguments)),
    }  # fmt: skip
    if arguments.method == "smart":
        prompt = PromptConfig(template=arguments.template)
        return SMART, SmartGrpoSpec(**common, grpo=SmartGrpoConfig(**settings), prompt=prompt)
    worker = WorkerConfig(decoding=SamplingConfig(max_tokens=arguments.tokens))
    reward = RewardConfig(independence_weight=0.0)  # its embedder may not be there
    return PLANNER, PlannerGrpoSpec(
        **common, grpo=PlannerGrpoConfig(**settings), worker=worker, reward=reward
    )


def rate_of(steps: list[dict[str, Any]], completions: int) -> dict[str, Any]:
    """Tokens/s and seconds of these steps, each of so many completions, and their parts by means."""
    walls = [row["time/wall"] for row in steps]
    tokens = [row["completions/mean_length"] * completions for row in steps]
    names = sorted({name for row in steps for name in row if name.startswith("time/")})
    parts = {name.removeprefix("time/"): mean([row.get(name, 0.0) for row in steps]) for name in names}
    return {
        "tokens_per_s": sum(tokens) / sum(walls), "steps": len(steps), "seconds_a_step": mean(walls),
        "tokens_a_step": mean(tokens), "parts_s": parts,
    }  # fmt: skip


def options_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The engine's options."""
    return {name: json.loads(value) for name, _, value in (o.partition("=") for o in arguments.option)}


def turns(arguments: argparse.Namespace) -> list[tuple[int, int]]:
    """Round and number of every run: 1 2, then 2 1, and so on."""
    orders = (arguments.counts, arguments.counts[::-1])
    return [(turn, count) for turn in range(arguments.rounds) for count in orders[turn % 2]]


def failed(turn: int, count: int, error: Exception) -> dict[str, Any]:
    return {"round": turn, "count": count, "error": f"{type(error).__name__}: {error}"[:2000]}


def write(arguments: argparse.Namespace, found: list[dict[str, Any]]) -> None:
    """Write what is known so far: a later run may be cut off."""
    ones = {row["round"]: row.get("tokens_per_s") for row in found if row["count"] == arguments.counts[0]}
    scaling: dict[int, list[float]] = {}
    for row in found:
        one, own = ones.get(row["round"]), row.get("tokens_per_s")
        row["scaling"] = own / one if own and one else None
        if own and one:
            scaling.setdefault(row["count"], []).append(row["scaling"])
    said = {name: str(value) for name, value in vars(arguments).items()}
    result = {"arguments": said, "environment": environment(), "scaling": scaling, "runs": found}
    text = json.dumps(result, indent=1, default=str)
    if arguments.out and found:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("sft")
    one.add_argument("--processes", dest="counts", type=int, nargs="+", default=[1, 2])
    one.add_argument("--batch", type=int, default=32, help="records a device and micro-step, of one process")
    one.add_argument("--accum", type=int, default=4)
    one.add_argument("--steps", type=int, default=30)
    one.add_argument("--warm", type=int, default=5)
    one.add_argument("--questions", type=int, default=6, help="in a record")
    one.add_argument("--device", default="auto")
    one.add_argument("--sharding", default="ddp", choices=["ddp", "fsdp", "deepspeed"])
    other = parts.add_parser("generate")
    other.add_argument("--engines", dest="counts", type=int, nargs="+", default=[1, 2])
    other.add_argument("--prompts", type=int, default=400)
    other.add_argument("--samples", type=int, default=16)
    other.add_argument("--tokens", type=int, default=256)
    other.add_argument("--shards", type=int, default=4, help="a engine, where there are several")
    third = parts.add_parser("grpo")
    third.add_argument("--cards", dest="counts", type=int, nargs="+", default=[1, 2])
    third.add_argument("--method", choices=["smart", "planner"], default="smart")
    third.add_argument("--template", default=PromptConfig().template, help="SMART's prompt")
    third.add_argument("--data", type=Path, help="questions in GSM8K's shape; unset generates some")
    third.add_argument("--prompts", type=int, default=16, help="questions a step")
    third.add_argument("--samples", type=int, default=8, help="completions a question")
    third.add_argument("--batch", type=int, default=8, help="completions a device and micro-step, at most")
    third.add_argument("--tokens", type=int, default=320, help="of a completion, at most")
    third.add_argument("--prompt-tokens", type=int, default=1024, help="longer questions are left out")
    third.add_argument("--steps", type=int, default=8)
    third.add_argument("--warm", type=int, default=2)
    third.add_argument("--device", default="auto")
    third.add_argument("--share-card", action="store_true", help="the engines sleep during updates")
    third.add_argument("--gradient-checkpointing", action="store_true")
    for part in (other, third):
        part.add_argument("--kind", default="vllm")
        part.add_argument("--option", action="append", default=[], help="name=JSON, of the engine")
    for part in (one, other, third):
        part.add_argument("--rounds", type=int, default=1)
        part.add_argument("model", type=Path)
        part.add_argument("--out", type=Path)
        part.add_argument("--keep", type=Path, help="folder for logs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reasoner-scale-") as folder:
        found = {"sft": sft, "generate": generation, "grpo": grpo}[arguments.part](arguments, Path(folder))
        if arguments.keep:
            for log in Path(folder).rglob("*.log"):
                arguments.keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(log, arguments.keep / f"{arguments.part}-{log.parent.name}-{log.name}")
    write(arguments, found)
    for row in found:
        print(
            {k: v for k, v in row.items() if k not in ("losses", "memory", "packing", "metrics")}, flush=True
        )
    return int(any("error" in row for row in found))


if __name__ == "__main__":
    sys.exit(main())
