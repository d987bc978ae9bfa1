"""What several cards give: tokens/s of fine-tuning and of generation on one and on more, on the same machine.

    python benchmarks/scale.py sft MODEL_FOLDER --processes 1 2 --out sft.json
    python benchmarks/scale.py generate MODEL_FOLDER --engines 1 2 --out generate.json [--kind vllm] [--option k=v]

Fine-tuning: the same records in the same optimiser steps for every number of processes; the rate is that of the steps
after the first `--warm`, without start and export. Generation: the same requests through the shared job of
`reasoner.shards`; the rate is from the moment when every engine is ready to the last completion that is recorded.
`scaling` is the rate by that of the first number. One run each, no interval: repeat it for one.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reasoner.config.training import TrainConfig  # noqa: E402
from reasoner.engines.protocol import EngineSettings  # noqa: E402
from reasoner.ledger.keys import request_keys  # noqa: E402
from reasoner.problems.word_problems import generate  # noqa: E402
from reasoner.prompts.chat import ChatRenderer  # noqa: E402
from reasoner.provenance import environment  # noqa: E402
from reasoner.records import GenerationRequest, Sampling, TrainingExample  # noqa: E402
from reasoner.shards.hosts import run_workers  # noqa: E402
from reasoner.shards.job import Job  # noqa: E402
from reasoner.shards.place import Place  # noqa: E402
from reasoner.store.rows import write_rows  # noqa: E402
from reasoner.training.launch import run_sft  # noqa: E402
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
    found = []
    for processes in arguments.processes:
        work = scratch / f"sft-{processes}"
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
                spec, scratch / f"sft-{processes}.log", lambda facts, t=times: t.append(time.monotonic())
            )
        except Exception as error:
            found.append({"processes": processes, "error": f"{type(error).__name__}: {error}"[:2000]})
            continue
        counts = done.training["records"]
        tokens = (counts["prompt_tokens"] + counts["completion_tokens"]) / done.training["steps"]
        measured = times[arguments.warm :]
        rate = tokens * (len(measured) - 1) / (measured[-1] - measured[0])
        found.append({
            "processes": processes, "sharding": spec.sharding if processes > 1 else None, "tokens_per_s": rate,
            "steps": len(measured) - 1, "tokens_a_step": tokens, "batch": done.training["batch"],
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
    options = {name: json.loads(value) for name, _, value in (o.partition("=") for o in arguments.option)}
    settings = EngineSettings(arguments.kind, arguments.model, options=options)
    found = []
    for engines in arguments.engines:
        size = len(owed) if engines == 1 else -(-len(owed) // (engines * arguments.shards))
        job = Job.publish(Place(scratch / f"shards-{engines}"), settings, owed, shard_size=size)
        times: list[float] = []
        started = time.monotonic()
        write(arguments, found)
        try:
            run_workers(
                job, engines, scratch / f"logs-{engines}", scratch / f"work-{engines}",
                lambda facts, t=times: t.append(time.time()), together=engines, batch=256, flush_seconds=2.0,
            )  # fmt: skip
        except Exception as error:
            found.append({"engines": engines, "error": f"{type(error).__name__}: {error}"[:2000]})
            continue
        done = [completion for shard in job.shards() for completion in shard.read().done.values()]
        seconds = max(times) - json.loads(job.place.read("started") or b"0")
        made = sum(c.completion_tokens for c in done)
        found.append({
            "engines": engines, "requests": len(done), "seconds": seconds, "completion_tokens": made,
            "prompt_tokens": sum(c.prompt_tokens for c in done), "tokens_per_s": made / seconds, "shard": size,
            "whole_s": time.monotonic() - started,
        })  # fmt: skip
    return found


def write(arguments: argparse.Namespace, found: list[dict[str, Any]]) -> None:
    """Write what is known so far: a later run may be cut off."""
    first = found[0].get("tokens_per_s") if found else None
    for row in found:
        row["scaling"] = row["tokens_per_s"] / first if first and "tokens_per_s" in row else None
    said = {name: str(value) for name, value in vars(arguments).items()}
    text = json.dumps({"arguments": said, "environment": environment(), "runs": found}, indent=1, default=str)
    if arguments.out and found:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(text + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(dest="part", required=True)
    one = parts.add_parser("sft")
    one.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    one.add_argument("--batch", type=int, default=32, help="records a device and micro-step, of one process")
    one.add_argument("--accum", type=int, default=4)
    one.add_argument("--steps", type=int, default=30)
    one.add_argument("--warm", type=int, default=5)
    one.add_argument("--questions", type=int, default=6, help="in a record")
    one.add_argument("--device", default="auto")
    one.add_argument("--sharding", default="ddp", choices=["ddp", "fsdp", "deepspeed"])
    other = parts.add_parser("generate")
    other.add_argument("--engines", type=int, nargs="+", default=[1, 2])
    other.add_argument("--prompts", type=int, default=400)
    other.add_argument("--samples", type=int, default=16)
    other.add_argument("--tokens", type=int, default=256)
    other.add_argument("--shards", type=int, default=4, help="a engine, where there are several")
    other.add_argument("--kind", default="vllm")
    other.add_argument("--option", action="append", default=[], help="name=JSON, of the engine")
    for part in (one, other):
        part.add_argument("model", type=Path)
        part.add_argument("--out", type=Path)
        part.add_argument("--keep", type=Path, help="folder for logs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reasoner-scale-") as folder:
        found = (sft if arguments.part == "sft" else generation)(arguments, Path(folder))
        if arguments.keep:
            for log in Path(folder).rglob("*.log"):
                arguments.keep.mkdir(parents=True, exist_ok=True)
                shutil.copy(log, arguments.keep / f"{arguments.part}-{log.parent.name}-{log.name}")
    write(arguments, found)
    for row in found:
        print({k: v for k, v in row.items() if k not in ("losses", "memory", "packing")}, flush=True)
    return int(any("error" in row for row in found))


if __name__ == "__main__":
    sys.exit(main())
